#include "text/bpe.hpp"

#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

constexpr size_t kPlainCharacters = 0x800;
constexpr size_t kLongPiece = 48;         // symbols from which a heap is faster than looking at all pairs
constexpr uint32_t kMaxId = 100'000'000;  // ids index a list, so that one damaged number must not fill the memory

// The heap's top is the lowest rank, and the leftmost place among equals.
bool comes_later(const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
}

}  // namespace

Bpe::Bpe(BpeOptions options) : options_(std::move(options)), merges_(options_.merges.size()) {
  uint32_t limit = 0;
  for (const auto& [token, id] : options_.vocabulary) {
    if (id > kMaxId) throw Error(ErrorKind::refused, "model.vocab: \"" + token + "\" has the id " + std::to_string(id));
    limit = std::max(limit, id + 1);
  }
  tokens_.resize(limit);
  for (auto& [token, id] : options_.vocabulary) {
    if (tokens_[id]) throw Error(ErrorKind::refused, "model.vocab: two tokens have the id " + std::to_string(id));
    tokens_[id] = std::move(token);
  }
  options_.vocabulary.clear();
  ids_.reserve(limit);
  for (uint32_t id = 0; id < limit; ++id) {
    if (tokens_[id]) ids_.emplace(*tokens_[id], id);
  }
  if (options_.unknown_token) unknown_id_ = id_of(*options_.unknown_token);
  plain_ids_.assign(kPlainCharacters, -1);
  for (char32_t code = 0; code < kPlainCharacters; ++code) {
    std::string character;
    append_character(character, code);
    if (const auto id = id_of(character)) plain_ids_[code] = *id;
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    const auto id = id_of(name);
    byte_ids_[byte] = id ? int64_t{*id} : -1;
  }
  read_merges(options_.merges);
  options_.merges.clear();
}

void Bpe::read_merges(const std::vector<std::pair<std::string, std::string>>& merges) {
  const auto known = [&](const std::string& token) {
    const auto id = id_of(token);
    if (!id) throw Error(ErrorKind::refused, "model.merges: \"" + token + "\" is not in the vocabulary");
    return *id;
  };
  uint32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const uint32_t left_id = known(left);
    const uint32_t right_id = known(right);
    const std::string joined = left + right.substr(std::min(right.size(), options_.continuing_prefix.size()));
    merges_.insert(left_id, right_id, {rank++, known(joined)});
  }
}

std::optional<uint32_t> Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Bpe::token_of(uint32_t id) const {
  return id < tokens_.size() && tokens_[id] ? &*tokens_[id] : nullptr;
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int64_t>& ids) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    if (const auto id = id_of(piece)) {
      ids.push_back(*id);
      return;
    }
  }
  split_characters(piece, scratch);
  if (scratch.ids.size() < kLongPiece) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

std::optional<uint32_t> Bpe::character_id(std::string_view character, bool first, bool last, Scratch& scratch) const {
  const bool prefixed = !first && !options_.continuing_prefix.empty();
  const bool suffixed = last && !options_.end_suffix.empty();
  if (!prefixed && !suffixed) return id_of(character);
  scratch.character.clear();
  if (prefixed) scratch.character += options_.continuing_prefix;
  scratch.character += character;
  if (suffixed) scratch.character += options_.end_suffix;
  return id_of(scratch.character);
}

// False, and nothing appended, unless the vocabulary has every byte.
bool Bpe::append_bytes(std::string_view character, std::vector<uint32_t>& ids) const {
  const auto id_of_byte = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return id_of_byte(c) < 0; })) return false;
  for (char c : character) ids.push_back(static_cast<uint32_t>(id_of_byte(c)));
  return true;
}

// The piece's characters as ids. An unknown token waits until it is known whether the next character joins it; bytes
// overtake one that waits, as they do in the `tokenizers` package.
void Bpe::split_characters(std::string_view piece, Scratch& scratch) const {
  std::vector<uint32_t>& ids = scratch.ids;
  ids.clear();
  const bool plain = options_.continuing_prefix.empty() && options_.end_suffix.empty();
  bool unknown_waits = false;
  for (size_t i = 0; i < piece.size();) {
    const Character character = character_at(piece, i);
    const std::string_view text = piece.substr(i, character.length);
    const bool first = i == 0;
    i += character.length;
    std::optional<uint32_t> id;
    if (plain && character.code < kPlainCharacters) {
      const int64_t found = plain_ids_[character.code];
      if (found >= 0) id = static_cast<uint32_t>(found);
    } else {
      id = character_id(text, first, i == piece.size(), scratch);
    }
    if (id) {
      if (unknown_waits) ids.push_back(*unknown_id_);
      unknown_waits = false;
      ids.push_back(*id);
      continue;
    }
    const bool changed =
        (!first && !options_.continuing_prefix.empty()) || (i == piece.size() && !options_.end_suffix.empty());
    if (options_.byte_fallback && append_bytes(changed ? std::string_view(scratch.character) : text, ids)) continue;
    if (!options_.unknown_token) continue;
    if (!unknown_id_) {
      throw Error(ErrorKind::refused, "model.unk_token: \"" + *options_.unknown_token + "\" is not in the vocabulary");
    }
    if (unknown_waits && !options_.fuse_unknown) ids.push_back(*unknown_id_);
    unknown_waits = true;
  }
  if (unknown_waits) ids.push_back(*unknown_id_);
}

// Looks at all pairs for each merge: quadratic, but without any bookkeeping.
void Bpe::merge_short(Scratch& scratch) const {
  std::vector<uint32_t>& ids = scratch.ids;
  std::vector<MergeTable::Merge>& merges = scratch.merges;  // merges[i]: of ids[i] and ids[i + 1]
  merges.clear();
  for (size_t i = 0; i + 1 < ids.size(); ++i) merges.push_back(merges_.find(ids[i], ids[i + 1]));
  while (!merges.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < merges.size(); ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNone) return;
    const auto at = static_cast<std::ptrdiff_t>(best);
    ids[best] = merges[best].id;
    ids.erase(ids.begin() + at + 1);
    merges.erase(merges.begin() + at);
    if (best > 0) merges[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best < merges.size()) merges[best] = merges_.find(ids[best], ids[best + 1]);
  }
}

// Symbols as a linked list and merges in a heap, for pieces that may be as long as the whole text.
void Bpe::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(scratch.ids.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({scratch.ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  const auto symbol = [&](int32_t place) -> Scratch::Symbol& { return symbols[static_cast<size_t>(place)]; };
  const auto offer = [&](int32_t place) {
    if (place < 0 || symbol(place).next < 0) return;
    const MergeTable::Merge merge = merges_.find(symbol(place).id, symbol(symbol(place).next).id);
    if (merge.rank == MergeTable::kNone) return;
    heap.push_back({merge.rank, place, merge.id});
    std::push_heap(heap.begin(), heap.end(), comes_later);
  };
  constexpr int32_t kGone = -2;  // as `previous` of a symbol that was merged into another
  for (int32_t i = 0; i < count; ++i) offer(i);
  while (!heap.empty()) {
    const Scratch::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    heap.pop_back();
    Scratch::Symbol& left = symbol(top.place);
    if (left.previous == kGone || left.next < 0) continue;
    Scratch::Symbol& right = symbol(left.next);
    const MergeTable::Merge merge = merges_.find(left.id, right.id);
    if (merge.rank != top.rank || merge.id != top.id) continue;  // one of the two has changed since
    left.id = merge.id;
    left.next = right.next;
    right.previous = kGone;
    if (left.next >= 0) symbol(left.next).previous = top.place;
    offer(left.previous);
    offer(top.place);
  }
  scratch.ids.clear();
  for (int32_t place = 0; place >= 0; place = symbol(place).next) scratch.ids.push_back(symbol(place).id);
}

}  // namespace vime::text
