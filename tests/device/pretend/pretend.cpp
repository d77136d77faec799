#include <torch/extension.h>
#include <ATen/EmptyTensor.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/NativeFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace {

constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr auto KEY = c10::DispatchKey::PrivateUse1;
constexpr c10::DeviceIndex DEVICES = 2;

// ---- what is asked of it, and what it has seen ----------------------------------------------------------------------

std::atomic<int64_t> held{0}, greatest{0}, most{-1};
std::atomic<bool> no_float64{false}, watching{false};
std::mutex counting;
std::map<std::string, int64_t> counts;
// never destroyed: threads of autograd may outlive the interpreter
PyObject* listener = nullptr;

void seen(const std::string& op) {
  if (!watching) return;
  std::lock_guard<std::mutex> lock(counting);
  ++counts[op];
}

void tell(const char* kind, const std::string& op, int64_t bytes) {
  if (!watching || listener == nullptr) return;
  py::gil_scoped_acquire gil;
  py::reinterpret_borrow<py::object>(listener)(kind, op, bytes);
}

void refuse_float64(c10::ScalarType kind) {
  if (no_float64)
    TORCH_CHECK_TYPE(kind != c10::kDouble && kind != c10::kComplexDouble,
                     "Cannot make a pretend tensor of float64: this device has no float64; use float32 instead");
}

// ---- memory ---------------------------------------------------------------------------------------------------------

thread_local c10::DeviceIndex current = 0;

void take(int64_t bytes) {
  const int64_t now = held += bytes;
  if (most >= 0 && now > most) {
    held -= bytes;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "pretend out of memory. Tried to allocate ", bytes, " bytes of ",
                     most.load(), ", of which ", now - bytes, " are taken");
  }
  int64_t before = greatest;
  while (now > before && !greatest.compare_exchange_weak(before, now)) {}
}

struct Block { void* data; int64_t bytes; c10::Storage of; };

void give(void* block) {
  auto* own = static_cast<Block*>(block);
  held -= own->bytes;
  if (!own->of) std::free(own->data);
  delete own;
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(KIND, current);
    if (bytes == 0) return {nullptr, device};
    take(bytes);
    void* data = nullptr;
    if (posix_memalign(&data, 64, bytes) != 0) { held -= bytes; TORCH_CHECK(false, "no memory"); }
    std::memset(data, 0xFF, bytes);  // of every floating-point type NaN
    return {data, new Block{data, static_cast<int64_t>(bytes), {}}, &give, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;

std::mutex pinning;
std::set<const void*> pinned;
struct Pinned final : c10::Allocator {
  static void drop(void* data) {
    std::lock_guard<std::mutex> lock(pinning);
    pinned.erase(data);
    std::free(data);
  }
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    TORCH_CHECK(posix_memalign(&data, 64, std::max<size_t>(bytes, 1)) == 0, "no memory");
    std::lock_guard<std::mutex> lock(pinning);
    pinned.insert(data);
    return {data, data, &drop, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Pinned pinned_memory;

// ---- copies that are not waited for ---------------------------------------------------------------------------------

std::mutex queueing;
std::vector<std::pair<at::Tensor, at::Tensor>> queue;  // on the processor, from a copy of what was on the device

void finish() {
  std::vector<std::pair<at::Tensor, at::Tensor>> own;
  {
    std::lock_guard<std::mutex> lock(queueing);
    own.swap(queue);
  }
  c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
  for (auto& [to, from] : own) to.copy_(from);
}

// ---- devices, streams, events ---------------------------------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  c10::Device exchangeDevice(c10::Device to) const override {
    const c10::Device before(KIND, current);
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override { return {KIND, current}; }
  void setDevice(c10::Device to) const override {
    TORCH_CHECK(to.index() < DEVICES, "pretend error: invalid device ordinal ", int(to.index()));
    if (to.index() >= 0) current = to.index();
  }
  void uncheckedSetDevice(c10::Device to) const noexcept override { if (to.index() >= 0) current = to.index(); }
  static c10::Stream& stream() {
    static thread_local std::vector<c10::Stream> own = [] {
      std::vector<c10::Stream> made;
      for (c10::DeviceIndex i = 0; i < DEVICES; ++i)
        made.emplace_back(c10::Stream::DEFAULT, c10::Device(KIND, i));
      return made;
    }();
    return own[current];
  }
  c10::Stream getStream(c10::Device d) const override {
    c10::DeviceIndex before = current;
    if (d.index() >= 0) current = d.index();
    const auto found = stream();
    current = before;
    return found;
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getNewStream(d, 0); }
  c10::Stream getNewStream(c10::Device d, int) const override {
    static std::atomic<int64_t> next{1};
    return c10::Stream(c10::Stream::UNSAFE, d.index() < 0 ? c10::Device(KIND, current) : d, next++);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    c10::DeviceIndex before = current;
    current = to.device_index();
    const auto old = stream();
    stream() = to;
    current = before;
    return old;
  }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    *event = reinterpret_cast<void*>(1);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { tell("wait", "synchronize", 0); finish(); }
  void synchronizeEvent(void*) const override { tell("wait", "synchronize", 0); finish(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { tell("wait", "synchronize", 0); finish(); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0.0; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- generators -----------------------------------------------------------------------------------------------------

struct Draws final : c10::GeneratorImpl {
  at::Generator inner;
  uint64_t seed_;
  explicit Draws(c10::DeviceIndex index, uint64_t seed = c10::default_rng_seed_val)
      : c10::GeneratorImpl({KIND, index}, c10::DispatchKeySet(KEY)), inner(at::detail::createCPUGenerator(0)) {
    set_current_seed(seed);
  }
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    inner.set_current_seed(seed ^ 0x9E3779B97F4A7C15ull);  // no stream of the processor's
  }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    using Pointer = c10::intrusive_ptr<c10::TensorImpl>;
    auto own = Pointer::unsafe_reclaim_from_nonowning(const_cast<c10::TensorImpl*>(&state));
    const at::Tensor bytes(own);
    TORCH_CHECK_TYPE(bytes.device().is_cpu() && bytes.scalar_type() == c10::kByte,
                     "RNG state must be a torch.ByteTensor");
    inner.set_state(bytes);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return inner.get_state().getIntrusivePtr(); }
  c10::GeneratorImpl* clone_impl() const override {
    auto* made = new Draws(device().index(), seed_);
    made->inner.set_state(inner.get_state());
    return made;
  }
};

const at::Generator& default_draws(c10::DeviceIndex index) {
  static std::vector<at::Generator> own = [] {
    std::vector<at::Generator> made;
    for (c10::DeviceIndex i = 0; i < DEVICES; ++i) made.push_back(at::make_generator<Draws>(i));
    return made;
  }();
  return own.at(index < 0 ? current : index);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  void setCurrentDevice(c10::DeviceIndex to) const override { Guard().setDevice({KIND, to}); }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex to) const override {
    return Guard().exchangeDevice({KIND, to}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex to) const override { return exchangeDevice(to); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex i) const override { return default_draws(i); }
  at::Generator getNewGenerator(c10::DeviceIndex i) const override {
    return at::make_generator<Draws>(i < 0 ? current : i);
  }
  at::Device getDeviceFromPtr(void*) const override { return {KIND, current}; }
  bool isPinnedPtr(const void* data) const override {
    std::lock_guard<std::mutex> lock(pinning);
    return pinned.count(data) > 0;
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto made = memory.allocate(bytes);
    if (storage.nbytes()) std::memcpy(made.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(made));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};
Hooks hooks;

// ---- the same memory as a tensor of the processor, and back ---------------------------------------------------------

at::Tensor here(const at::Tensor& t) {
  if (!t.defined() || t.device().type() != KIND) return t;
  const auto& storage = t.storage();
  // the processor's storage keeps the device's alive
  auto* keep = new c10::Storage(storage);
  c10::DataPtr data(storage.mutable_data(), keep, [](void* k) { delete static_cast<c10::Storage*>(k); },
                    c10::Device(c10::kCPU));
  auto made = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(data), c10::GetAllocator(c10::kCPU), true);
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(made)), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  auto* impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return result;
}

c10::Storage there(const c10::Storage& storage, c10::DeviceIndex index) {
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  take(bytes);
  c10::DataPtr data(storage.mutable_data(), new Block{nullptr, bytes, storage}, &give, {KIND, index});
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), &memory, true));
}

at::Tensor there(const at::Tensor& t, c10::DeviceIndex index) {
  if (!t.defined() || t.device().type() == KIND) return t;
  refuse_float64(t.scalar_type());
  auto result =
      at::detail::make_tensor<c10::TensorImpl>(there(t.storage(), index), c10::DispatchKeySet(KEY), t.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return result;
}

// ---- every operator that has no kernel of its own -------------------------------------------------------------------

const std::set<std::string> takes_numbers{
    "aten::index_put_", "aten::_index_put_impl_", "aten::masked_fill_", "aten::masked_fill", "aten::index_fill_",
    "aten::fill_", "aten::where", "aten::lerp", "aten::lerp_", "aten::addcmul", "aten::addcdiv", "aten::clamp",
    "aten::_foreach_mul", "aten::_foreach_add", "aten::_foreach_mul_", "aten::_foreach_add_", "aten::_foreach_div"};
const std::set<std::string> takes_indices{
    "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index", "aten::_unsafe_index_put"};
const std::set<std::string> waits{
    "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
    "aten::_unique", "aten::bincount", "aten::equal", "aten::repeat_interleave", "aten::histc", "aten::multinomial"};
const std::set<std::string> products{
    "aten::mm", "aten::bmm", "aten::addmm", "aten::addmm_", "aten::addmv", "aten::addmv_", "aten::mv", "aten::dot",
    "aten::baddbmm", "aten::baddbmm_", "aten::addbmm", "aten::addr"};

std::string spoken(c10::Device d) { return d.type() == KIND ? "pretend:" + std::to_string(d.index()) : d.str(); }

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& name = schema.name();
  const auto& arguments = schema.arguments();
  const size_t count = arguments.size(), begin = stack->size() - count;
  seen(name);

  // where: of the first tensor there, else of a device among the arguments
  c10::optional<c10::Device> device;
  auto look = [&](const at::Tensor& t) {
    if (t.defined() && t.device().type() == KIND && !device) device = t.device();
  };
  for (size_t i = 0; i < count; ++i) {
    const auto& value = (*stack)[begin + i];
    if (value.isTensor()) look(value.toTensor());
    else if (value.isTensorList()) for (const at::Tensor& t : value.toTensorVector()) look(t);
    else if (value.isOptionalTensorList()) { for (const auto& t : value.toOptionalTensorVector()) if (t) look(*t); }
    else if (value.isDevice() && value.toDevice().type() == KIND && !device) {
      const auto d = value.toDevice();
      device = c10::Device(KIND, d.index() < 0 ? current : d.index());
    }
  }
  if (!device) device = c10::Device(KIND, current);
  const auto index = device->index();

  const bool numbers = op.hasTag(at::Tag::pointwise) || takes_numbers.count(name);
  auto check = [&](const at::Tensor& t, const c10::Argument& a, bool is_index) {
    if (!t.defined()) return;
    const bool written = a.alias_info() && a.alias_info()->isWrite();
    if (t.device() == *device) {
      if (products.count(name) && c10::isIntegralType(t.scalar_type(), true))
        TORCH_CHECK_NOT_IMPLEMENTED(false, "\"", name, "\" not implemented on an accelerator for '",
                                    t.scalar_type(), "'");
      return;
    }
    const bool passes = (is_index && takes_indices.count(name)) || (t.dim() == 0 && numbers);
    if (t.device().is_cpu() && !written && passes) return;
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                spoken(*device), " and ", spoken(t.device()), "! (argument ", a.name(), " of ", name, ")");
  };

  std::vector<at::Tensor> given(count), alias(count);
  std::vector<std::vector<at::Tensor>> given_lists(count), alias_lists(count);
  bool by_mask = false;
  for (size_t i = 0; i < count; ++i) {
    auto& value = (*stack)[begin + i];
    const auto& argument = arguments[i];
    if (value.isTensor()) {
      given[i] = value.toTensor();
      check(given[i], argument, false);
      alias[i] = here(given[i]);
      value = alias[i];
    } else if (value.isTensorList()) {
      given_lists[i] = value.toTensorVector();
      for (const auto& t : given_lists[i]) {
        check(t, argument, false);
        alias_lists[i].push_back(here(t));
      }
      value = c10::IValue(c10::List<at::Tensor>(alias_lists[i]));
    } else if (value.isOptionalTensorList()) {
      c10::List<c10::optional<at::Tensor>> own;
      for (const auto& t : value.toOptionalTensorVector()) {
        if (!t) { own.push_back(c10::nullopt); continue; }
        check(*t, argument, true);
        by_mask |= t->defined() && (t->scalar_type() == c10::kBool || t->scalar_type() == c10::kByte);
        if (t->defined() && t->device().is_cpu()) tell("to device", name, t->nbytes());
        own.push_back(here(*t));
      }
      value = c10::IValue(own);
    } else if (value.isDevice()) {
      if (value.toDevice().type() == KIND) value = c10::IValue(c10::Device(c10::kCPU));
    } else if (value.isGenerator() ||
               (value.isNone() && argument.type()->str().find("Generator") != std::string::npos)) {
      const at::Generator draws = value.isNone() ? default_draws(index) : value.toGenerator();
      TORCH_CHECK(draws.device().type() == KIND, "Expected a 'pretend' device type for generator but found '",
                  draws.device().type() == c10::kCPU ? "cpu" : draws.device().str(), "'");
      value = static_cast<Draws*>(draws.unsafeGetGeneratorImpl())->inner;
    }
  }
  if (waits.count(name) || (by_mask && name != "aten::index")) tell("wait", name, 0);  // index asks nonzero

  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);

  // what was written to may have got more memory, or another shape
  auto adopt = [&](const at::Tensor& mine, const at::Tensor& own) {
    if (!mine.defined() || mine.device().type() != KIND) return;
    auto* impl = mine.unsafeGetTensorImpl();
    if (own.storage().data() != mine.storage().data() || own.storage().nbytes() != mine.storage().nbytes())
      impl->set_storage_keep_dtype(there(own.storage(), index));
    if (own.sizes() != mine.sizes() || own.strides() != mine.strides() || own.storage_offset() != mine.storage_offset())
      impl->set_sizes_and_strides(own.sizes(), own.strides(), own.storage_offset());
  };
  for (size_t i = 0; i < count; ++i) {
    if (!arguments[i].alias_info() || !arguments[i].alias_info()->isWrite()) continue;
    if (given[i].defined()) adopt(given[i], alias[i]);
    for (size_t j = 0; j < given_lists[i].size(); ++j) adopt(given_lists[i][j], alias_lists[i][j]);
  }

  const auto& returns = schema.returns();
  const size_t first = stack->size() - returns.size();
  for (size_t r = 0; r < returns.size(); ++r) {
    auto& value = (*stack)[first + r];
    const auto* info = returns[r].alias_info();
    if (value.isTensor()) {
      const auto t = value.toTensor();
      bool found = false;
      for (size_t i = 0; info && info->isWrite() && i < count && !found; ++i) {
        if (arguments[i].alias_info() && *arguments[i].alias_info() == *info && given[i].defined()) {
          value = given[i];
          found = true;
        }
      }
      if (found) continue;
      for (size_t i = 0; i < count && !found && t.defined(); ++i)
        if (alias[i].defined() && alias[i].is_same(t)) { value = given[i]; found = true; }
      if (!found) value = there(t, index);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> own;
      for (const at::Tensor& t : value.toTensorVector()) own.push_back(there(t, index));
      value = c10::IValue(own);
    }
  }
}

// ---- operators with kernels of their own ----------------------------------------------------------------------------

c10::DeviceIndex of(c10::optional<c10::Device> device) {
  const auto index = device && device->has_index() ? device->index() : current;
  TORCH_CHECK(index < DEVICES, "pretend error: invalid device ordinal ", int(index));
  return index;
}

at::Tensor empty(at::IntArrayRef size, c10::optional<at::ScalarType> dtype, c10::optional<at::Layout>,
                 c10::optional<at::Device> device, c10::optional<bool> pin, c10::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(c10::Device(KIND, of(device)));
  const auto kind = c10::dtype_or_default(dtype);
  refuse_float64(kind);
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(KEY), kind, format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, c10::optional<at::ScalarType> dtype,
                         c10::optional<at::Layout>, c10::optional<at::Device> device, c10::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(c10::Device(KIND, of(device)));
  const auto kind = c10::dtype_or_default(dtype);
  refuse_float64(kind);
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(KEY), kind);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  if (self.is_same(from)) return self;
  const bool to = self.device().type() == KIND, of = from.device().type() == KIND;
  seen("aten::copy_");
  if (!to && of && non_blocking) {
    tell("from device, not waited for", "aten::copy_", from.nbytes());
    auto kept = here(from).clone().expand(self.sizes()).to(self.scalar_type());
    if (self.is_floating_point()) self.fill_(std::numeric_limits<double>::quiet_NaN());
    else self.fill_(0);
    std::lock_guard<std::mutex> lock(queueing);
    queue.emplace_back(self, kept);
    return self;
  }
  if (to != of) {
    // CUDA converts on the processor what it waits for, before it is sent
    tell(to ? (non_blocking ? "to device, not waited for" : "to device") : "from device", "aten::copy_",
         to && !non_blocking ? self.nbytes() : from.nbytes());
    if (!non_blocking) finish();
  }
  auto own = here(self);
  own.copy_(here(from));
  return self;
}

at::Scalar number(const at::Tensor& self) {
  seen("aten::_local_scalar_dense");
  tell("wait", "item", 0);
  finish();
  return at::_local_scalar_dense(here(self));
}

at::Tensor convolution(const at::Tensor& x, const at::Tensor& w, const c10::optional<at::Tensor>& b,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  seen("aten::convolution");
  TORCH_CHECK(x.device() == w.device() && (!b || !b->defined() || b->device() == x.device()),
              "Expected all tensors to be on the same device, but found at least two devices, ", spoken(x.device()),
              " and ", spoken(x.device() == w.device() ? b->device() : w.device()), "! (aten::convolution)");
  c10::optional<at::Tensor> bias;
  if (b && b->defined()) bias = here(*b);
  return there(at::convolution(here(x), here(w), bias, stride, padding, dilation, transposed, output_padding, groups),
               x.device().index());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& g, const at::Tensor& x, const at::Tensor& w, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> mask) {
  seen("aten::convolution_backward");
  const std::vector<int64_t> bias{transposed ? w.size(1) * groups : w.size(0)};
  auto [a, b, c] = at::convolution_backward(here(g), here(x), here(w), at::OptionalIntArrayRef(bias), stride, padding,
                                            dilation, transposed, output_padding, groups, mask);
  const auto i = x.device().index();
  return {there(a, i), there(b, i), there(c, i)};
}

using Maybe = c10::optional<at::Tensor>;
bool is(const Maybe& t) { return t && t->defined(); }

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& x, const at::Tensor& h, const at::Tensor& c, const Maybe& bx, const Maybe& bh) {
  seen("aten::_thnn_fused_lstm_cell");
  auto gates = here(x) + here(h);
  if (is(bx)) gates = gates + here(*bx) + here(*bh);
  auto parts = gates.chunk(4, 1);
  auto i = parts[0].sigmoid(), f = parts[1].sigmoid(), g = parts[2].tanh(), o = parts[3].sigmoid();
  auto cell = f * here(c) + i * g;
  const auto at_ = x.device().index();
  return {there(o * cell.tanh(), at_), there(cell, at_), there(at::cat({i, f, g, o}, 1), at_)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const Maybe& gh, const Maybe& gc, const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& work, bool bias) {
  seen("aten::_thnn_fused_lstm_cell_backward");
  auto parts = here(work).chunk(4, 1);
  auto i = parts[0], f = parts[1], g = parts[2], o = parts[3], t = here(cy).tanh();
  auto down = is(gh) ? here(*gh) : at::zeros_like(t);
  auto cell = down * o * (1 - t * t);
  if (is(gc)) cell = cell + here(*gc);
  auto gates = at::cat(
      {cell * g * i * (1 - i), cell * here(cx) * f * (1 - f), cell * i * (1 - g * g), down * t * o * (1 - o)}, 1);
  const auto at_ = cx.device().index();
  return {there(gates, at_), there(cell * f, at_), bias ? there(gates.sum(0), at_) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& x, const at::Tensor& h, const at::Tensor& hx, const Maybe& bx, const Maybe& bh) {
  seen("aten::_thnn_fused_gru_cell");
  auto a = here(x), b = here(h);
  if (is(bx)) { a = a + here(*bx); b = b + here(*bh); }
  auto in = a.chunk(3, 1), hid = b.chunk(3, 1);
  auto r = (in[0] + hid[0]).sigmoid(), z = (in[1] + hid[1]).sigmoid(), n = (in[2] + r * hid[2]).tanh();
  const auto at_ = x.device().index();
  return {there(n + z * (here(hx) - n), at_), there(at::cat({r, z, n, here(hx), hid[2]}, 1), at_)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& g_, const at::Tensor& work, bool bias) {
  seen("aten::_thnn_fused_gru_cell_backward");
  auto g = here(g_);
  auto parts = here(work).chunk(5, 1);
  auto r = parts[0], z = parts[1], n = parts[2], hx = parts[3], hn = parts[4];
  auto gz = g * (hx - n) * z * (1 - z), gn = g * (1 - z) * (1 - n * n), gr = gn * hn * r * (1 - r);
  auto in = at::cat({gr, gz, gn}, 1), hid = at::cat({gr, gz, gn * r}, 1);
  const auto at_ = g_.device().index();
  at::Tensor none;
  return {there(in, at_), there(hid, at_), there(g * z, at_), bias ? there(in.sum(0), at_) : none,
          bias ? there(hid.sum(0), at_) : none};
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }
at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      c10::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}
at::Tensor alias_of(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}
at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, source, offset, size, stride);
}
at::Tensor& set_whole(at::Tensor& self, at::Storage source) { return at::native::set_(self, source); }
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) { return at::native::set_tensor_(self, source); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("copy_", copy_);
  m.impl("_local_scalar_dense", number);
  m.impl("view", view);
  m.impl("as_strided", as_strided);
  m.impl("_reshape_alias", alias_of);
  m.impl("unfold", unfold);
  m.impl("set_.source_Storage", set_whole);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
  // as on CUDA these are one kernel each, and no composition
  for (const char* name : {"native_group_norm", "native_layer_norm", "addr", "silu_backward", "mish_backward"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

int64_t mathematical(const at::Tensor&, const at::Tensor&, const at::Tensor&, const c10::optional<at::Tensor>&, double,
                     bool, c10::optional<double>, bool) {
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

}  // namespace

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &mathematical)
}

// CUDA's lists of what autocast computes in which type
namespace at::autocast {
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLOAT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define CHOSEN(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)

#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FLOAT)
  AT_FORALL_FP32_SET_OPT_DTYPE(CHOSEN)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(WIDEST)
}
}  // namespace at::autocast

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("start", [] {
    c10::SetAllocator(KIND, &memory);
    at::RegisterPrivateUse1HooksInterface(&hooks);
  });
  m.def("held", [] { return held.load(); });
  m.def("greatest", [] { return greatest.load(); });
  m.def("reset_greatest", [] { greatest = held.load(); });
  m.def("limit", [](int64_t bytes) { most = bytes; });
  m.def("no_float64", [](bool on) { no_float64 = on; });
  m.def("current", [] { return int(current); });
  m.def("set_current", [](int to) { Guard().setDevice({KIND, static_cast<c10::DeviceIndex>(to)}); });
  m.def("default_draws", [](int i) { return default_draws(static_cast<c10::DeviceIndex>(i)); });
  m.def("watch", [](py::object to) {
    watching = false;
    PyObject* before = listener;
    listener = to.is_none() ? nullptr : to.inc_ref().ptr();
    Py_XDECREF(before);
    watching = listener != nullptr;
  });
  m.def("counts", [] { std::lock_guard<std::mutex> lock(counting); return counts; });
  m.def("reset_counts", [] { std::lock_guard<std::mutex> lock(counting); counts.clear(); });
}
