#include "fleet/vllm_report.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "vllm/dialect.hpp"

namespace vime::fleet {
namespace {

// What a release can do, whatever its configuration.
void add_dialect(const std::string& version, bool cpu_build, Json& report) {
  const vllm::Dialect dialect = vllm::dialect_of(version);
  report["generation"] = vllm::generation_name(dialect.generation);
  report["newer_than_known"] = dialect.newer_than_known;
  Json& can = report["can"];
  can["push from a folder"] = "yes";
  can["push over CUDA IPC"] = cpu_build                  ? "no, a build for GPUs does"
                              : dialect.ipc_takes_packed ? "yes"
                                                         : "tensor by tensor only";
  can["push over NCCL"] = cpu_build ? "no, a build for GPUs does" : "yes";
  can["tell its weight version"] = dialect.finish_takes_version ? "yes" : "no, vime keeps it";
  can["abort all requests"] = dialect.aborts_all_requests ? "by request" : "by a pause";
}

std::string yes_or_no(bool yes) {
  return yes ? "yes" : "no";
}

}  // namespace

Json server_report(const std::string& url, const ServerFacts& facts) {
  Json report = {{"server", url}, {"version", facts.version}, {"model", facts.served_model}};
  Json missing = Json::array();
  try {
    add_dialect(facts.version, facts.device == "cpu", report);
  } catch (const Error& error) {
    missing.push_back(error.what());
  }
  report["settings"] = {{"routes of pushes", yes_or_no(facts.dev_mode)}};
  if (facts.max_model_len) report["settings"]["longest sequence"] = std::to_string(*facts.max_model_len);
  if (!facts.dev_mode) {
    missing.push_back(
        "the routes that pushes and pauses need: start it with VLLM_SERVER_DEV_MODE=1 in its environment");
  } else {
    report["settings"]["workers"] = std::to_string(facts.world_size);
    report["settings"]["device"] = facts.device.empty() ? "not told" : facts.device;
    report["settings"]["dtype"] = facts.dtype.empty() ? "not told" : facts.dtype;
    report["settings"]["weight transfer"] =
        facts.transfer_backend.empty() ? "none: folders only" : facts.transfer_backend;
    report["settings"]["sleep mode"] = yes_or_no(facts.sleep_mode);
    report["settings"]["reads pickles"] = yes_or_no(facts.insecure_serialization);
    if (facts.transfer_backend == "ipc" && !facts.insecure_serialization) {
      missing.push_back("leave to read CUDA IPC handles: start it with VLLM_ALLOW_INSECURE_SERIALIZATION=1");
    }
  }
  report["missing"] = missing;
  return report;
}

Json install_report(const InstallFacts& facts) {
  Json report = {{"install", facts.site_packages.string()}, {"version", facts.version}};
  if (!facts.version.empty()) {
    try {
      add_dialect(facts.version, facts.cpu_build, report);
    } catch (const Error&) {
      report["can"] = Json::object();  // install_problems says why
    }
  }
  report["settings"] = {{"program", facts.program.empty() ? "none" : facts.program.string()},
                        {"torch", facts.torch.empty() ? "none" : facts.torch},
                        {"transformers", facts.transformers.empty() ? "none" : facts.transformers},
                        {"build", facts.cpu_build ? "for CPUs" : "for GPUs"}};
  report["missing"] = install_problems(facts);
  return report;
}

std::string report_text(const Json& report) {
  std::string text = "vLLM " + report.at("version").get<std::string>();
  if (report.contains("generation")) text += ", wire generation " + report["generation"].get<std::string>();
  if (report.value("newer_than_known", false)) text += " (newer than what vime knows)";
  text += "\n  " + (report.contains("server") ? report["server"] : report["install"]).get<std::string>() + "\n";
  for (const char* section : {"settings", "can"}) {
    if (!report.contains(section)) continue;
    for (const auto& [name, value] : report[section].items()) {
      std::string label = name;
      label.resize(std::max<std::size_t>(label.size(), 26), ' ');
      text += "  " + label + " " + value.get<std::string>() + "\n";
    }
  }
  if (report.at("missing").empty()) return text + "nothing is missing\n";
  text += "missing:\n";
  for (const Json& missing : report["missing"]) text += "  " + missing.get<std::string>() + "\n";
  return text;
}

}  // namespace vime::fleet
