#include "text/metaspace.hpp"

#include "text/component_json.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}

  void apply(Pieces& pieces) const override {
    std::string marked;
    std::vector<Span> spans;
    for (const Span& span : pieces.spans) {
      const bool first = pieces.starts_document && span.begin == 0;
      const size_t begin = marked.size();
      append_marked(pieces.piece(span), first, marked);
      if (options_.split) {
        append_split(marked, begin, spans);
      } else {
        spans.push_back({begin, marked.size()});
      }
    }
    pieces.starts_document = pieces.starts_document && !pieces.spans.empty() && pieces.spans[0].begin == 0;
    pieces.text = std::move(marked);
    pieces.spans = std::move(spans);
  }

 private:
  void append_marked(std::string_view piece, bool first, std::string& marked) const {
    const bool wanted = options_.prepend == MetaspaceOptions::Prepend::always ||
                        (options_.prepend == MetaspaceOptions::Prepend::first && first);
    if (wanted && piece[0] != ' ' && piece.substr(0, options_.replacement.size()) != options_.replacement) {
      marked += options_.replacement;
    }
    for (char c : piece) {
      if (c == ' ') {
        marked += options_.replacement;
      } else {
        marked += c;
      }
    }
  }

  // Each piece begins with a replacement character, but for what stands before the first one.
  void append_split(const std::string& marked, size_t begin, std::vector<Span>& spans) const {
    std::vector<Match> matches;
    size_t done = begin;
    for (size_t at = begin; (at = marked.find(options_.replacement, at)) != std::string::npos; at = done) {
      if (done < at) matches.push_back({done, at, false});
      done = at + options_.replacement.size();
      matches.push_back({at, done, true});
    }
    if (done < marked.size()) matches.push_back({done, marked.size(), false});
    append_pieces(matches, SplitBehavior::merged_with_next, false, 0, spans);
  }

  MetaspaceOptions options_;
};

}  // namespace

MetaspaceOptions metaspace_options(const Json& component, const std::string& where) {
  MetaspaceOptions options;
  options.replacement = text_member(component, "replacement", where);
  if (options.replacement.empty() || character_length(options.replacement, 0) != options.replacement.size()) {
    refuse_component(where, "replacement \"" + options.replacement + "\"", "one character");
  }
  options.split = flag_member(component, "split", true, where);
  if (optional_member(component, "prepend_scheme") != nullptr) {
    const std::string scheme = text_member(component, "prepend_scheme", where);
    if (scheme == "always") {
      options.prepend = MetaspaceOptions::Prepend::always;
    } else if (scheme == "first") {
      options.prepend = MetaspaceOptions::Prepend::first;
    } else if (scheme == "never") {
      options.prepend = MetaspaceOptions::Prepend::never;
    } else {
      refuse_component(where, "prepend_scheme \"" + scheme + "\"", "always, first, never");
    }
  } else if (!flag_member(component, "add_prefix_space", true, where)) {
    options.prepend = MetaspaceOptions::Prepend::never;
  }
  return options;
}

std::unique_ptr<const PreTokenizer> make_metaspace_pre_tokenizer(const Json& component, const std::string& where) {
  return std::make_unique<Metaspace>(metaspace_options(component, where));
}

}  // namespace vime::text
