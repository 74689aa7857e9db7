// The "BPE" model of tokenizer.json: a piece of text becomes its characters, and neighbours merge in the order of the
// merge list (Sennrich, Haddow, Birch 2016, algorithm 1). Immutable; any thread, each with its own Scratch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/merge_table.hpp"

namespace vime::text {

struct BpeOptions {
  std::vector<std::pair<std::string, uint32_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  std::optional<std::string> unknown_token;
  std::string continuing_prefix;  // before every character of a piece but the first
  std::string end_suffix;         // behind the last character of a piece
  bool fuse_unknown = false;      // a run of unknown characters gives one unknown token
  bool byte_fallback = false;     // unknown characters as their bytes, "<0x0A>"
  bool ignore_merges = false;     // a piece that is a token is that token, whatever the merges say
};

class Bpe {
 public:
  // Room that encode works in, kept from piece to piece so that none of them allocates.
  struct Scratch {
    struct Symbol {
      uint32_t id;
      int32_t previous;
      int32_t next;
    };
    struct Candidate {
      uint32_t rank;
      int32_t place;
      uint32_t id;
    };
    std::vector<uint32_t> ids;
    std::vector<MergeTable::Merge> merges;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::string character;
  };

  // Error{refused} when a merge or the unknown token is not in the vocabulary.
  explicit Bpe(BpeOptions options);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Appends the ids of one piece. Characters that are not in the vocabulary and have no unknown token give nothing.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int64_t>& ids) const;

  std::optional<uint32_t> id_of(std::string_view token) const;
  const std::string* token_of(uint32_t id) const;  // nullptr for an id without a token
  size_t token_count() const { return ids_.size(); }
  uint32_t id_limit() const { return static_cast<uint32_t>(tokens_.size()); }  // above every id

 private:
  void read_merges(const std::vector<std::pair<std::string, std::string>>& merges);
  void split_characters(std::string_view piece, Scratch& scratch) const;
  std::optional<uint32_t> character_id(std::string_view character, bool first, bool last, Scratch& scratch) const;
  bool append_bytes(std::string_view character, std::vector<uint32_t>& ids) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  BpeOptions options_;                              // vocabulary and merges are moved out of it
  std::vector<std::optional<std::string>> tokens_;  // by id
  std::unordered_map<std::string_view, uint32_t> ids_;
  std::vector<int64_t> plain_ids_;       // of characters below U+0800 by code, -1 where there is none
  std::array<int64_t, 256> byte_ids_{};  // of "<0x00>"..., -1 where there is none
  std::optional<uint32_t> unknown_id_;
  MergeTable merges_;
};

}  // namespace vime::text
