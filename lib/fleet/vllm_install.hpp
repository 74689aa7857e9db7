// What an installation of vLLM on this machine holds, from its files: no Python is started.
#pragma once

#include <string>
#include <vector>

#include "base/files.hpp"

namespace vime::fleet {

struct InstallFacts {
  fs::path site_packages;
  fs::path program;     // bin/vllm beside it; empty: there is none
  std::string version;  // "0.25.1"
  std::string torch;    // "" = not there
  std::string transformers;
  bool ray = false;        // a module of this name can be imported, were it empty
  bool cpu_build = false;  // "+cpu" in the version
};

// path: an environment's folder, its bin/vllm, or a site-packages folder. Error{refused} says where was looked.
InstallFacts inspect_install(const fs::path& path);

// One sentence for each thing that is missing, with the cure.
std::vector<std::string> install_problems(const InstallFacts& facts);

}  // namespace vime::fleet
