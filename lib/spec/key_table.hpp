// What the sections of the key table are made with. Only the keys_*.cpp files include this.
#pragma once

#include "spec/keys.hpp"

// Where a key's value is kept: FIELD(trainer.lr).
#define FIELD(path) [](ExperimentSpec& spec, size_t) -> Field { return &spec.path; }
// The same of a key in a list of sections: ENTRY_FIELD(eval.datasets, name).
#define ENTRY_FIELD(list, path) [](ExperimentSpec& spec, size_t entry) -> Field { return &spec.list[entry].path; }
// The list itself: SECTION_LIST(eval.datasets, function that returns the section of one entry).
#define SECTION_LIST(list, entry_section)                                       \
  SectionList {                                                                 \
    entry_section, [](const ExperimentSpec& spec) { return spec.list.size(); }, \
        [](ExperimentSpec& spec, size_t count) { spec.list.resize(count); }     \
  }

namespace vime::spec::table {

inline Limits at_least(double least) {
  return {.least = least};
}
inline Limits above(double least) {
  return {.least = least, .least_excluded = true};
}
inline Limits between(double least, double most) {
  return {.least = least, .most = most};
}
inline Limits share_below_one() {
  return {.least = 0, .most = 1, .most_excluded = true};
}
inline Limits only(double value) {
  return between(value, value);
}
// Counts: large enough for every job, small enough that the products of three fit in 64 bits.
inline Limits count() {
  return between(1, 1e6);
}

// What `reward.type` can be, and the rewards of evaluations with it.
inline std::vector<std::string> reward_types() {
  return {"exact_match", "position_match", "numeric", "boxed", "f1", "choice", "regex", "command", "http"};
}

Section top_level();
Section model();
Section data();
Section reward();
Section eval();
Section trainer();
Section algorithm();
Section rollout();
Section checkpoint();
Section debug();
Section ci();
Section placement();
Section engine();
Section weight_sync();
Section offload();

}  // namespace vime::spec::table
