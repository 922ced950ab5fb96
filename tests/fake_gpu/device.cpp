// A device of torch that keeps its tensors in the memory of the CPU and computes there, but is another device:
// operations on its tensors and the CPU's, and numpy() of its tensors, are errors, as on a GPU.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using at::IntArrayRef;
using at::SymIntArrayRef;
using at::Tensor;

constexpr auto FAKE = c10::DeviceType::PrivateUse1;
constexpr std::size_t ALIGNMENT = 64;

c10::Device device() { return c10::Device(FAKE, 0); }
c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, device()); }
IntArrayRef plain(SymIntArrayRef values) { return C10_AS_INTARRAYREF_SLOW(values); }

// One device with one stream, on which everything is done at once.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = FAKE;
  c10::DeviceType type() const override { return FAKE; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t size) override {
    void* start = size ? std::aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT) : nullptr;
    return {start, start, &std::free, device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t size) const override { std::memcpy(to, from, size); }
};
Memory memory;
REGISTER_ALLOCATOR(FAKE, &memory);

void grow(const c10::Storage& storage, std::size_t size) {
  c10::DataPtr fresh = memory.allocate(size);
  const std::size_t kept = std::min(size, storage.nbytes());
  if (kept) std::memcpy(fresh.get(), storage.data(), kept);
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
  storage.unsafeGetStorageImpl()->set_nbytes(size);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  bool isPinnedPtr(const void*) const override { return false; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t size) const override { grow(storage, size); }
};

Tensor empty(SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(plain(size), &memory, keys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(SymIntArrayRef size, SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(plain(size), plain(stride), &memory, keys, c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the CPU.
Tensor on_cpu(const Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(tensor.dtype()));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  if (to.numel()) on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar scalar(const Tensor& tensor) { return on_cpu(tensor).item(); }

Tensor as_strided(const Tensor& tensor, SymIntArrayRef size, SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  std::optional<int64_t> start;
  if (offset) start = offset->expect_int();
  return at::native::as_strided_tensorimpl(tensor, plain(size), plain(stride), start);
}

Tensor view(const Tensor& tensor, SymIntArrayRef size) { return at::native::view(tensor, plain(size)); }

Tensor reshape_alias(const Tensor& tensor, SymIntArrayRef size, SymIntArrayRef stride) {
  return at::native::_reshape_alias(tensor, plain(size), plain(stride));
}

const Tensor& resize(const Tensor& tensor, SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* content = tensor.unsafeGetTensorImpl();
  content->set_sizes_contiguous(plain(size));
  const std::size_t needed = (content->numel() + content->storage_offset()) * tensor.itemsize();
  if (tensor.storage().nbytes() < needed) grow(tensor.storage(), needed);
  return tensor;
}

Tensor& set_storage(Tensor& tensor, at::Storage storage, c10::SymInt offset, SymIntArrayRef size, SymIntArrayRef stride) {
  return at::native::set_storage_cpu_(tensor, storage, offset.expect_int(), plain(size), plain(stride));
}

Tensor& set_whole_storage(Tensor& tensor, at::Storage storage) {
  const std::vector<int64_t> size{static_cast<int64_t>(storage.nbytes() / tensor.itemsize())};
  return at::native::set_storage_cpu_(tensor, std::move(storage), 0, size, {});
}

// Indices may be on the CPU; copies connect the devices.
const std::set<std::string> ANY_DEVICES = {"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::copy_"};

void compute(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  bool cpu = false, fake = false;
  const auto look = [&](const Tensor& tensor) {
    if (!tensor.defined()) return;
    fake |= tensor.is_privateuseone();
    cpu |= tensor.is_cpu() && tensor.dim() > 0;
  };
  for (const auto& value : torch::jit::last(*stack, operation.schema().arguments().size())) {
    if (value.isTensor()) look(value.toTensor());
    if (value.isTensorList())
      for (const Tensor& tensor : value.toTensorVector()) look(tensor);
  }
  const std::string& name = operation.schema().operator_name().name;
  TORCH_CHECK(!(cpu && fake) || ANY_DEVICES.count(name),
              "Expected all tensors to be on the same device; ", name, " got some on cpu and some on fake:0.");
  at::native::cpu_fallback(operation, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(scalar));
  library.impl("as_strided", TORCH_FN(as_strided));
  library.impl("view", TORCH_FN(view));
  library.impl("_reshape_alias", TORCH_FN(reshape_alias));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("alias", TORCH_FN(at::native::alias));
}

extern "C" void use_fake_gpu() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}
