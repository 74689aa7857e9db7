// The folder that a sweep writes in, which is its own: two sweeps never share one, however close they are started.
// Blocks on the disk only.
#pragma once

#include "base/files.hpp"

namespace vime::sweep {

class RunFolder {
 public:
  // Makes this folder. Where `numbered`, it takes "-2", "-3" and so on when another has the name; otherwise a folder
  // that is there is taken as long as it is empty. Error{refused}: it is not, or it cannot be made.
  RunFolder(const fs::path& wanted, bool numbered);

  const fs::path& path() const { return path_; }
  // With all that it holds, and the folder around it where that was made for it and nobody else has put anything in.
  void remove() const;

 private:
  void make_numbered(const fs::path& wanted);
  void take(const fs::path& wanted);

  fs::path path_;  // absolute
  bool made_parent_ = false;
};

}  // namespace vime::sweep
