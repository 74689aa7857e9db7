// Where --json puts the result. Everything that would stand in its way is found before a sweep of minutes is started.
// Blocks on the disk only.
#pragma once

#include <string>

#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::sweep {

class ResultFile {
 public:
  // Changes nothing. Error{refused}, in one sentence naming the file: the name is empty; it is a folder, a device, a
  // FIFO or the like, which writing aside and renaming would replace; its folder is not there or cannot be written.
  explicit ResultFile(const std::string& name);

  // Removes what an earlier sweep wrote, so that one that is killed leaves nothing which looks like its result.
  void clear() const;
  void write(const Json& result) const;

  const fs::path& path() const { return path_; }

 private:
  std::string name_;
  fs::path path_;  // absolute; where the name is a symbolic link: what it points to
};

}  // namespace vime::sweep
