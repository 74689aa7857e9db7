// The folders that engines load weights from, one a version: <root>/version_000012. They are written aside and renamed,
// so that a folder under its own name is whole. The root is one run's alone: everything in it goes with this object.
// One thread.
#pragma once

#include <cstdint>

#include "base/files.hpp"

namespace vime::loop {

class WeightFolders {
 public:
  // Empty root: none are used. Error{refused} where it cannot be made.
  explicit WeightFolders(fs::path root);
  ~WeightFolders();  // removes the root; engines have loaded what they needed
  WeightFolders(const WeightFolders&) = delete;
  WeightFolders& operator=(const WeightFolders&) = delete;

  // Makes the folder that the weights are to be written into. Error{exhausted} when `bytes` more do not fit.
  fs::path begin(int64_t version, uint64_t bytes) const;
  // Renames it, and removes all but this version and the one before.
  fs::path publish(int64_t version) const;

 private:
  fs::path folder(int64_t version) const;
  void remove_all_but(int64_t oldest) const;

  fs::path root_;
};

}  // namespace vime::loop
