// Everything that is wrong with a spec, collected while it is read and thrown as one error. Not shared between threads.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace vime::spec {

// Where a value was written. `text` is what errors begin with: "quickstart.yaml:12:5" or "--set trainer.lr=x".
struct Place {
  int source = 0;  // 0 = the file, k = the k-th override
  int line = 1;    // from 1
  int column = 1;  // from 1, in characters
  std::string text;
};

class Problems {
 public:
  explicit Problems(std::string file_name);

  // Where a key ("trainer.lr") or a section ("trainer") was given; the last one counts.
  void note_given(const std::string& path, const Place& place);
  // No key of the entries of this list of sections was given.
  void forget_entries(const std::string& list_path);
  bool is_given(const std::string& path) const { return given_.count(path) > 0; }

  void add(const Place& place, const std::string& message);
  // At the place where the key was given, else at the section around it, else at the start of the file. The key counts
  // as wrong from then on.
  void add_at(const std::string& path, const std::string& message);
  // The key's value cannot be used, for a reason that was added already.
  void mark_wrong(const std::string& path) { wrong_.insert(path); }
  // None of these keys is wrong: a check that needs them may run.
  bool sound(std::initializer_list<const char*> paths) const;

  // After many problems the rest is only counted: a caller may then skip dear work such as looking for near names.
  bool many() const { return problems_.size() >= kListed; }

  // Throws Error{refused} with one line per problem, in the order of their places; does nothing when there is none.
  void throw_if_any() const;

 private:
  static constexpr size_t kListed = 50;
  struct Problem {
    Place place;
    std::string message;
  };

  Place place_of(const std::string& path) const;

  std::string file_name_;
  std::vector<Problem> problems_;
  size_t not_listed_ = 0;
  std::map<std::string, Place> given_;
  std::set<std::string> wrong_;
};

}  // namespace vime::spec
