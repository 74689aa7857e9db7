#include <CLI/CLI.hpp>

#include "commands.hpp"

namespace vime::app {
namespace {

void add_overrides(CLI::App& command, SpecArguments& arguments) {
  // One value per --set, or the next positional argument would be swallowed.
  command
      .add_option("--set", arguments.overrides,
                  "Change a key of the spec, for example trainer.lr=1e-3; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

}  // namespace

void add_spec_arguments(CLI::App& command, SpecArguments& arguments) {
  command.add_option("CONFIG", arguments.config, "YAML experiment spec")->required()->type_name("");
  add_overrides(command, arguments);
}

void add_spec_arguments(CLI::App& command, SpecArguments& arguments, const std::string& optional_config) {
  command.add_option("CONFIG", arguments.config, optional_config)->type_name("");
  add_overrides(command, arguments);
}

}  // namespace vime::app
