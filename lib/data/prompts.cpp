#include "data/prompts.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "data/line_reader.hpp"
#include "data/prompt_line.hpp"
#include "data/prompt_source.hpp"

namespace vime::data {
namespace {

constexpr size_t kReasonsKept = 5;

// Eight bytes at a time; the length keeps a line apart from the same one with NULs behind it.
uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = mix64(bytes.size());
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t count = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), count);
    hash = mix64(hash ^ word);
    bytes.remove_prefix(count);
  }
  return hash;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

class Loader {
 public:
  explicit Loader(const LoadOptions& options) : options_(options), lines_(options) {
    for (const std::string* key :
         {&options.input_key, &options.label_key, &options.metadata_key, &options.reward_key}) {
      add_to_fingerprint(*key);
    }
    add_to_fingerprint(options.apply_chat_template ? "chat" : "text");
  }

  PromptSet load() {
    for (size_t i = 0; i < options_.prompt_data.size(); ++i) {
      const PromptSource source = parse_source(options_.prompt_data[i]);
      check_source(source);
      if (source.builtin) {
        add_builtin(source, static_cast<int32_t>(i));
      } else {
        add_file(source, static_cast<int32_t>(i));
      }
    }
    if (set_.prompts.empty()) {
      throw Error(ErrorKind::refused,
                  "no prompt is left: all " + counted(set_.lines, "line") +
                      " are bad, the first one: " + (set_.bad_reasons.empty() ? "" : set_.bad_reasons.front()));
    }
    return std::move(set_);
  }

 private:
  // Each addition depends on those before it, so that an order is part of the fingerprint.
  void add_to_fingerprint(std::string_view bytes) { set_.fingerprint = mix_key(set_.fingerprint, hash_bytes(bytes)); }

  void add_builtin(const PromptSource& source, int32_t number) {
    for (Prompt& prompt : builtin_prompts(source.text)) {
      add_to_fingerprint(prompt.text);
      add_to_fingerprint(prompt.label);
      prompt.id += next_id_;
      prompt.source = number;
      set_.prompts.push_back(std::move(prompt));
      ++set_.lines;
    }
    next_id_ += builtin_ids(source.text);
  }

  int64_t count_lines(const PromptSource& source) const {
    LineReader reader(source.path, options_.max_line_bytes);
    int64_t count = 0;
    for (std::string_view line; reader.next(line);) count += is_blank(line) && !reader.is_too_long() ? 0 : 1;
    return count;
  }

  void add_file(const PromptSource& source, int32_t number) {
    const int64_t before = set_.lines;
    const auto [begin, end] = source.counts_from_end() ? line_range(source, count_lines(source)) : line_range(source);
    LineReader reader(source.path, options_.max_line_bytes);
    int64_t row = 0;  // lines that are not empty
    for (std::string_view line; row < end && reader.next(line);) {
      if (is_blank(line) && !reader.is_too_long()) {
        ++set_.empty_lines;
      } else if (row++ >= begin) {
        add_line(source, number, reader, line);
      }
    }
    if (set_.lines > before) return;
    throw Error(ErrorKind::refused, source.path == source.text
                                        ? source.text + ": the file has no lines; expected one JSON object per line"
                                        : source.text + ": the slice selects no line of the file's " +
                                              counted(count_lines(source), "line"));
  }

  void add_line(const PromptSource& source, int32_t number, const LineReader& reader, std::string_view line) {
    Prompt prompt;
    prompt.id = next_id_++;
    prompt.line = reader.number();
    prompt.source = number;
    ++set_.lines;
    add_to_fingerprint(line);
    std::string wrong;
    if (reader.is_too_long()) {
      wrong = "expected a line of at most " + std::to_string(options_.max_line_bytes) +
              " bytes (max_line_bytes), found a longer one";
    } else {
      try {
        wrong = lines_.read(line, prompt);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::refused) throw error.within(place(source, reader));
        wrong = error.what();
      }
    }
    if (wrong.empty()) {
      set_.prompts.push_back(std::move(prompt));
    } else {
      add_bad_line(place(source, reader) + ": " + wrong);
    }
  }

  static std::string place(const PromptSource& source, const LineReader& reader) {
    return source.path + ":" + std::to_string(reader.number());
  }

  void add_bad_line(std::string reason) {
    if (set_.bad_reasons.size() < kReasonsKept) set_.bad_reasons.push_back(std::move(reason));
    if (++set_.bad_lines <= options_.max_bad_lines) return;
    if (options_.max_bad_lines == 0) {
      throw Error(ErrorKind::refused, set_.bad_reasons.front(),
                  "data.max_bad_lines allows some bad lines; they are left out");
    }
    throw Error(ErrorKind::refused, "more than " + counted(options_.max_bad_lines, "bad line") +
                                        " (data.max_bad_lines), the first of them:\n" + join(set_.bad_reasons, "\n"));
  }

  const LoadOptions& options_;
  PromptLines lines_;
  PromptSet set_;
  int64_t next_id_ = 0;
};

}  // namespace

PromptSet load_prompts(const LoadOptions& options) {
  VIME_CHECK(!options.prompt_data.empty(), "no source of prompts");
  try {
    return Loader(options).load();
  } catch (const Error& error) {
    throw error.within(options.what);
  }
}

std::string prompt_place(const Prompt& prompt, const std::vector<std::string>& prompt_data) {
  const PromptSource source = parse_source(prompt_data.at(static_cast<size_t>(prompt.source)));
  if (source.builtin) return source.text + " (prompt " + std::to_string(prompt.id) + ")";
  return source.path + ":" + std::to_string(prompt.line);
}

}  // namespace vime::data
