// Regular expressions as tokenizer.json writes them (Oniguruma's notation), matched on well-formed UTF-8. A Regex is
// immutable: any thread may search with it, each with its own Search. A build without VIME_TOKENIZERS refuses to make
// one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace vime::text {

class Regex {
 public:
  // Error{refused} for an expression that is wrong, or that uses a construct vime does not translate.
  explicit Regex(const std::string& expression);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Walks over the matches of one text after the other; one thread owns it.
  class Search {
   public:
    explicit Search(const Regex& regex);
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;
    ~Search();
    void start(std::string_view text);
    // The next match, or false. Empty matches right behind the last one are passed over.
    // Error{refused} when matching takes more steps than a limit that no sane expression reaches.
    bool next(size_t& begin, size_t& end);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace vime::text
