#include "loop/closing.hpp"

#include <cstdio>

#include "base/strings.hpp"
#include "report/text_plot.hpp"

namespace vime::loop {

void print_closing(const report::Summary& summary, const std::vector<double>& rewards, const Parts& parts,
                   const RunDirectory& directory) {
  std::string text;
  text += report::text_plot(rewards, 60, 10, "reward (mean of each rollout)");
  text += "\n" + report::status(summary) + ": " + std::to_string(summary.steps) + " optimizer steps in " +
          format_seconds(summary.wall_time_s);
  if (parts.pushes()) text += ", every engine on weight version " + std::to_string(summary.weight_version);
  text += "\n";
  for (const report::EvalFigures& figures : summary.eval) {
    text += "eval/" + figures.name + ": first " + format_number(figures.first, 3) + ", last " +
            format_number(figures.last, 3) + ", best " + format_number(figures.best, 3) + "\n";
  }
  text += "run directory: " + directory.root().string() + "\n";
  if (fs::exists(directory.root() / "checkpoints" / "latest")) {
    text += "model: " + (directory.root() / "checkpoints" / "latest" / "model").string() + "\n";
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace vime::loop
