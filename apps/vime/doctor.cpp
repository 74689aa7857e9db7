// vime doctor: what this machine, and a vLLM server or installation, can do.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "commands.hpp"
#include "fleet/vllm_report.hpp"
#include "http/client.hpp"

namespace vime::app {
namespace {

constexpr milliseconds kTimeout{120'000};  // a server looks at its whole Python installation for /server_info

struct DoctorOptions {
  std::string vllm;
  bool json = false;
};

Json machine_report() {
  const devices::Inventory machine = find_gpus();
  Json gpus = Json::array();
  for (const devices::Gpu& gpu : machine.gpus) {
    gpus.push_back(
        {{"index", gpu.ordinal}, {"uuid", gpu.uuid}, {"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
  }
  return {{"gpus", gpus}, {"why_none", machine.gpus.empty() ? machine.reason : ""}};
}

std::string machine_text(const Json& report) {
  if (report["gpus"].empty()) {
    return "no GPU for vime: " + report["why_none"].get<std::string>() + "\nruns on virtual devices of the CPU\n";
  }
  std::string text;
  for (const Json& gpu : report["gpus"]) {
    text += "GPU " + std::to_string(gpu["index"].get<int>()) + "  " + gpu["name"].get<std::string>() + ", " +
            std::to_string(gpu["memory_bytes"].get<uint64_t>() >> 30) + " GiB, " + gpu["uuid"].get<std::string>() +
            "\n";
  }
  return text;
}

Json vllm_report(std::string subject) {
  while (subject.ends_with("/")) subject.pop_back();
  if (!subject.starts_with("http://") && !subject.starts_with("https://")) {
    return fleet::install_report(fleet::inspect_install(subject));
  }
  http::Client client;
  const char* const key = std::getenv("VLLM_API_KEY");  // as vLLM's own programs take it
  const weights::EngineAddress server{0, subject, key == nullptr ? "" : key, weights::kSomeVllm};
  return fleet::server_report(subject, fleet::ask_server(client, server, kTimeout));
}

int doctor_command(const DoctorOptions& options) {
  const Json report = options.vllm.empty() ? machine_report() : vllm_report(options.vllm);
  const std::string text = options.json           ? report.dump(2) + "\n"
                           : options.vllm.empty() ? machine_text(report)
                                                  : fleet::report_text(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return report.contains("missing") && !report["missing"].empty() ? exit_status(ErrorKind::check_failed) : 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("doctor", "Say what this machine, or a vLLM server or installation, can do");
  const auto options = std::make_shared<DoctorOptions>();
  command->add_option(
      "--vllm", options->vllm,
      "A running server (http://host:port), or an installation: an environment's folder, its bin/vllm, or "
      "its site-packages; exit status 3 when something is missing");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([&chosen, options] { chosen = [options] { return doctor_command(*options); }; });
}

}  // namespace vime::app
