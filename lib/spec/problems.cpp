#include "spec/problems.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace vime::spec {

Problems::Problems(std::string file_name) : file_name_(std::move(file_name)) {}

void Problems::note_given(const std::string& path, const Place& place) {
  given_[path] = place;
}

void Problems::forget_entries(const std::string& list_path) {
  const std::string prefix = list_path + "[";
  for (auto at = given_.lower_bound(prefix); at != given_.end() && at->first.rfind(prefix, 0) == 0;) {
    at = given_.erase(at);
  }
}

void Problems::add(const Place& place, const std::string& message) {
  if (many()) {
    ++not_listed_;
  } else {
    problems_.push_back({place, message});
  }
}

void Problems::add_at(const std::string& path, const std::string& message) {
  add(place_of(path), message);
  mark_wrong(path);
}

bool Problems::sound(std::initializer_list<const char*> paths) const {
  return std::none_of(paths.begin(), paths.end(), [this](const char* path) { return wrong_.count(path) > 0; });
}

Place Problems::place_of(const std::string& path) const {
  for (std::string around = path;; around.resize(around.rfind('.'))) {
    const auto found = given_.find(around);
    if (found != given_.end()) return found->second;
    if (around.find('.') == std::string::npos) break;
  }
  return {0, 1, 1, file_name_ + ":1:1"};
}

void Problems::throw_if_any() const {
  if (problems_.empty()) return;
  std::vector<Problem> sorted = problems_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Problem& a, const Problem& b) {
    return std::tie(a.place.source, a.place.line, a.place.column) <
           std::tie(b.place.source, b.place.line, b.place.column);
  });
  const size_t count = sorted.size() + not_listed_;
  std::string text = count == 1 ? "" : std::to_string(count) + " errors in the spec:\n";
  for (size_t i = 0; i < sorted.size(); ++i) {
    text += (i > 0 ? "\n" : "") + sorted[i].place.text + ": " + sorted[i].message;
  }
  if (not_listed_ > 0) text += "\nand " + std::to_string(not_listed_) + " more";
  throw Error(ErrorKind::refused, text);
}

}  // namespace vime::spec
