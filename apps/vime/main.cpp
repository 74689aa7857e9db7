// The command line: options are declared in the subcommands' files, errors become one message and an exit status here.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "commands.hpp"
#include "proc/process.hpp"
#include "worker_module.hpp"

namespace {

using namespace vime;

const char* const kFooter =
    "Examples:\n"
    "  vime run configs/quickstart.yaml\n"
    "  vime plan configs/quickstart.yaml\n"
    "  vime eval configs/quickstart.yaml --model runs/R/checkpoints/latest/model\n"
    "  vime plan configs/quickstart.yaml --set placement.rollout_num_gpus_per_engine=1\n"
    "  vime check-parallel sweep --num-gpus 4,2\n"
    "\nExit status:\n"
    "  0    done and right\n"
    "  2    refused before anything was started (usage, spec, too few devices, missing files)\n"
    "  3    a self-check failed\n"
    "  4    a process failed for good\n"
    "  5    memory, disk or ports ran out\n"
    "  130  interrupted\n";

void add_commands(CLI::App& app, app::Action& chosen) {
  app::add_run_command(app, chosen);
  app::add_plan_command(app, chosen);
  app::add_eval_command(app, chosen);
  app::add_check_parallel_command(app, chosen);
  app::add_bench_command(app, chosen);
  app::add_doctor_command(app, chosen);
  app::add_engine_command(app, chosen);
  app::add_trainer_command(app, chosen);
  app::add_agent_command(app, chosen);
}

int report(const Error& error) {
  std::fprintf(stderr, "vime: %s\n", error.message().c_str());
  if (!error.hint().empty()) std::fprintf(stderr, "hint: %s\n", error.hint().c_str());
  return exit_status(error.kind());
}

// The subcommand that the user was in when the command line went wrong.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::vector<std::string> known_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::App* inner : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!inner->get_group().empty()) words.push_back(inner->get_name());
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  return words;
}

// "vime check-parallel sweep"
std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? "vime" : full_name(*parent) + " " + command.get_name();
}

Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  const std::string name = full_name(command);
  const std::vector<std::string> extras = command.remaining();
  const std::string hint = "see " + name + " --help";
  if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr && extras.empty())
    return {ErrorKind::refused, error.what(), hint};
  if (!extras.empty()) {
    const std::string nearest = nearest_name(split(extras.front(), '=').front(), known_words(command));
    const std::string kind = extras.front()[0] == '-' ? "option" : &command == &app ? "command" : "argument";
    return {ErrorKind::refused,
            "unknown " + kind + " \"" + extras.front() + "\"" +
                (nearest.empty() ? "" : " (did you mean \"" + nearest + "\"?)"),
            hint};
  }
  return {ErrorKind::refused, &command == &app ? "a command is missing" : std::string(error.what()), hint};
}

// A full disk or a closed pipe shows only when the buffer is written.
int with_flushed_output(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  throw Error(ErrorKind::exhausted, "write to standard output: " + errno_text(errno));
}

int run(int argc, char** argv) {
  CLI::App app("vime: reinforcement-learning post-training of language models", "vime");
  app::Action chosen;
  app.set_version_flag("--version", "vime " VIME_VERSION, "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);
  add_commands(app, chosen);
  app.footer(kFooter);  // after the subcommands, which would take it over
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" with status 0; they go to stdout.
    if (error.get_exit_code() == 0) return with_flushed_output(app.exit(error));
    return report(usage_error(app, error));
  }
  return with_flushed_output(chosen());
}

}  // namespace

int app::run_command_line(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads the progress may leave; what must be written says so itself
  proc::remember_arguments(argc, argv);
  app::remember_module_arguments(argc, argv);
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return report(error);
  } catch (const std::exception& error) {
    return report(Error(ErrorKind::internal, error.what(), "this is a bug in vime"));
  }
}

int main(int argc, char** argv) {
  return app::run_command_line(argc, argv);
}
