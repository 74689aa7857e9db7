// safetensors files: 8 bytes little-endian header length, JSON header {name: {dtype, shape, data_offsets},
// "__metadata__": {..}}, data.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "tensor/tensor.hpp"

namespace vime::tensor {

// Maps a file read-only; views stay valid while this lives. Refuses (Error{refused}, file and reason named) a truncated
// file, a header that is no JSON or too long, a name that occurs twice, offsets that overlap, leave the data or do not
// fit dtype and shape, and bytes after the last tensor. Files of other writers may hold views that are not aligned to
// their element size.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::vector<TensorView>& tensors() const;         // in the header's order
  const TensorView& find(const std::string& name) const;  // Error{refused} naming file and tensor
  bool contains(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;
  const fs::path& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether a finished file survives the machine's end, which takes as long as the disk, or only the process's.
enum class Lasts { for_good, until_shutdown };

// Writes a file whose tensors come one after another. Writes aside; finish() fsyncs and renames. Error{exhausted} when
// the disk is full. The header keeps the order given. The data has the largest elements first, equal ones as given, so
// that every tensor begins at a multiple of its element size without gaps; the header is padded to 8 bytes.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const fs::path& path, const std::vector<TensorInfo>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();  // without finish() nothing is left
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  void append(const std::byte* tensor, uint64_t bytes);  // the next tensor, in the order of the data
  void finish(Lasts lasts = Lasts::for_good);            // all tensors must be there

 private:
  fs::path path_, aside_;
  UniqueFd fd_;
  std::vector<uint64_t> sizes_;  // in the order of the data
  size_t next_ = 0;
};

// All at once.
void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace vime::tensor
