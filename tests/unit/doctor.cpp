// What `crosswarp doctor` thinks of machines that are not here.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "doctor/judge.hpp"
#include "doctor/probe.hpp"

namespace {

namespace fs = std::filesystem;
using namespace crosswarp::tool::doctor_impl;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// What each finding must hold, whatever it is about.
void expect(const finding& f, severity how, const std::string& seen) {
  EXPECT_EQ(to_string(f.how), std::string(to_string(how))) << f.area << ": " << f.seen;
  EXPECT_THAT(f.seen, HasSubstr(seen));
  const bool bad = f.how == severity::hint || f.how == severity::problem;
  EXPECT_EQ(bad, !f.remedy.empty()) << f.area << ": what is wrong has a remedy, and only that";
  EXPECT_THAT(f.remedy, Not(HasSubstr("\n"))) << "one line";
}

constexpr std::uint64_t mebi = 1U << 20U;

// ---- GPUs

cuda_facts one_gpu(int capability = 90) {
  cuda_facts f;
  f.built = true;
  f.built_for = "80,90";
  f.driver = 13000;
  f.runtime = 13000;
  f.gpus = {{"NVIDIA H200", capability}};
  return f;
}

TEST(Driver, IsNotMissedByWhoDoesNotWantIt) {
  expect(judge_driver({}, false), severity::skipped, "built without CUDA");
  expect(judge_driver({}, true), severity::problem, "this build has no CUDA");
  cuda_facts f;
  f.driver_file = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1";
  expect(judge_driver(f, false), severity::hint, "this build has no CUDA");
  f = one_gpu();
  f.driver = 0;
  expect(judge_driver(f, false), severity::hint, "no NVIDIA driver");
  expect(judge_driver(f, true), severity::problem, "no NVIDIA driver");
}

TEST(Driver, OfAnOlderMajorVersionRunsNothing) {
  cuda_facts f = one_gpu();
  expect(judge_driver(f, true), severity::ok, "driver for CUDA 13.0, built with 13.0, 1 GPU");
  f.driver = 12080;
  expect(judge_driver(f, false), severity::problem, "driver for CUDA 12.8");
  f.runtime = 12090;
  expect(judge_driver(f, false), severity::ok, "12.9");  // minor versions are compatible
}

TEST(Driver, WithoutAGpuSaysWhatTheRuntimeSays) {
  cuda_facts f = one_gpu();
  f.gpus.clear();
  f.no_device_reason = "no CUDA-capable device is detected";
  expect(judge_driver(f, false), severity::hint, "no CUDA-capable device");
  expect(judge_driver(f, true), severity::problem, "no CUDA-capable device");
}

severity capability(int gpu, const std::string& built_for) {
  cuda_facts f = one_gpu(gpu);
  f.built_for = built_for;
  const auto all = judge_capability(f);
  EXPECT_EQ(all.size(), 1U);
  expect(all.front(), all.front().how, "");
  return all.front().how;
}

TEST(Capability, AgainstWhatWasBuilt) {
  EXPECT_EQ(capability(80, "80,90"), severity::ok);
  EXPECT_EQ(capability(86, "80,90"), severity::ok);  // binaries run on later minor versions
  EXPECT_EQ(capability(90, "80,90"), severity::ok);
  EXPECT_EQ(capability(100, "80,90"), severity::hint);  // translated
  EXPECT_EQ(capability(90, "80"), severity::hint);
  EXPECT_EQ(capability(75, "80,90"), severity::problem);
  EXPECT_EQ(capability(100, "80-real,90-real"), severity::problem);
  EXPECT_EQ(capability(100, "90a"), severity::problem);
  EXPECT_EQ(capability(90, "90a"), severity::ok);
  EXPECT_EQ(capability(90, "90-virtual"), severity::hint);
  EXPECT_EQ(capability(80, "86"), severity::problem);
  EXPECT_EQ(capability(75, "native"), severity::ok);
}

TEST(Capability, IsToldOnceForEachKindOfGpu) {
  cuda_facts f = one_gpu();
  f.gpus = {{"A", 90}, {"A", 90}, {"B", 75}};
  const auto all = judge_capability(f);
  ASSERT_EQ(all.size(), 2U);
  expect(all[1], severity::problem, "B, compute capability 7.5");
  EXPECT_THAT(all[1].remedy, HasSubstr("CMAKE_CUDA_ARCHITECTURES=75"));
}

TEST(Mps, CostIsNamedWhenNobodyAnswers) {
  mps_facts f;
  f.folder = "/tmp/nvidia-mps";
  expect(judge_mps(f, {}), severity::skipped, "no GPU");
  expect(judge_mps(f, one_gpu()), severity::hint, "2 ms, not 0.35 us");
  f.answers = true;
  expect(judge_mps(f, one_gpu()), severity::hint, "only when told");
  f.folder_from_environment = true;
  expect(judge_mps(f, one_gpu()), severity::ok, "answers");
}

TEST(PeerAccess, NamesThePairsWithoutIt) {
  cuda_facts f = one_gpu();
  expect(judge_peer_access(f), severity::skipped, "");
  f.gpus.push_back(f.gpus.front());
  expect(judge_peer_access(f), severity::ok, "");
  f.without_peer_access = {{0, 1}};
  expect(judge_peer_access(f), severity::hint, "0-1");
}

TEST(CudaSettings, NameWhatIsMissing) {
  environment_facts e;
  expect(judge_cuda_settings(e, {}), severity::skipped, "");
  expect(judge_cuda_settings(e, one_gpu()), severity::hint, "CUDA_MODULE_LOADING=EAGER");
  e.set["CUDA_MODULE_LOADING"] = "EAGER";
  expect(judge_cuda_settings(e, one_gpu()), severity::hint, "CUDA_DEVICE_MAX_CONNECTIONS=32");
  e.set["CUDA_DEVICE_MAX_CONNECTIONS"] = "32";
  expect(judge_cuda_settings(e, one_gpu()), severity::ok, "");
}

// ---- limits

TEST(LockedMemory, IsAProblemOnlyWhereRdmaNeedsIt) {
  memory_facts m;
  m.locked = {64 * 1024, 64 * 1024};
  rdma_facts with_device;
  with_device.devices = {"mlx5_0"};
  expect(judge_locked_memory(m, {}), severity::hint, "64 KiB");
  EXPECT_THAT(judge_locked_memory(m, {}).remedy, HasSubstr("limits.conf"));
  expect(judge_locked_memory(m, with_device), severity::problem, "64 KiB");
  m.locked.hard = unlimited;
  EXPECT_EQ(judge_locked_memory(m, {}).remedy, "ulimit -l unlimited");
  m.locked.hard = 128 * mebi;
  EXPECT_EQ(judge_locked_memory(m, {}).remedy, "ulimit -l 131072");
  m.may_lock_all = true;
  expect(judge_locked_memory(m, with_device), severity::ok, "not bound");
  m.may_lock_all = false;
  m.locked = {};
  expect(judge_locked_memory(m, with_device), severity::ok, "unlimited");
}

TEST(OpenFiles, AgainstTheNumberOfRanks) {
  expect(judge_open_files({215, 215}, 64), severity::problem, "64 ranks need 216");
  expect(judge_open_files({215, 216}, 64), severity::hint, "");  // the launcher raises its own
  expect(judge_open_files({1024, 65536}, 64), severity::hint, "few");
  EXPECT_EQ(judge_open_files({1024, 65536}, 64).remedy, "ulimit -n 65536");
  expect(judge_open_files({1024, 1024}, 4), severity::ok, "1024");
  expect(judge_open_files({}, 4096), severity::ok, "unlimited");
}

TEST(Memfd, RemedyDependsOnTheReason) {
  memory_facts m;
  expect(judge_memfd(m), severity::ok, "works");
  m.memfd_error = EACCES;
  expect(judge_memfd(m), severity::problem, "Permission denied");
  EXPECT_THAT(judge_memfd(m).remedy, HasSubstr("memfd_noexec"));
  m.memfd_error = EPERM;
  expect(judge_memfd(m), severity::problem, "");
  EXPECT_THAT(judge_memfd(m).remedy, HasSubstr("sandbox"));
}

TEST(SharedMemoryFolder, SmallOrAbsentIsAHint) {
  memory_facts m;
  expect(judge_shm(m), severity::hint, "not there");
  m.shm_there = true;
  m.shm_bytes = 64 * mebi;  // what Docker gives
  m.shm_free = 64 * mebi;
  expect(judge_shm(m), severity::hint, "64 MiB of 64 MiB");
  m.shm_free = m.shm_bytes = 4096 * mebi;
  expect(judge_shm(m), severity::ok, "4 GiB");
}

TEST(Mappings, MustHoldABlockOfThreads) {
  memory_facts m;
  expect(judge_mappings(m), severity::skipped, "");
  m.max_map_count = 4000;
  expect(judge_mappings(m), severity::problem, "1000 threads");
  m.max_map_count = 10'000;
  expect(judge_mappings(m), severity::hint, "4000 threads");
  m.max_map_count = 65530;
  expect(judge_mappings(m), severity::ok, "31765 threads");
}

TEST(Overcommit, StrictAccountingIsTold) {
  memory_facts m;
  expect(judge_overcommit(m), severity::ok, "");
  m.overcommit = 2;
  m.commit_left = 1024 * mebi;
  expect(judge_overcommit(m), severity::hint, "1 GiB left");
  m.commit_left = mebi;
  expect(judge_overcommit(m), severity::problem, "1 MiB left");
}

TEST(Cores, QuotaAndRanks) {
  core_facts c{16, 16, std::nullopt};
  expect(judge_cores(c, 0), severity::ok, "16");
  expect(judge_cores(c, 16), severity::ok, "16");
  expect(judge_cores(c, 17), severity::hint, "17 ranks");
  c.allowed = 4;
  expect(judge_cores(c, 0), severity::ok, "4 of 16");
  expect(judge_cores(c, 5), severity::hint, "5 ranks");
  c.quota = 1.5;
  expect(judge_cores(c, 1), severity::hint, "time for 1.5");
  c.quota = 4;
  expect(judge_cores(c, 0), severity::ok, "4");
}

TEST(Peeking, WithinAndBetweenProcesses) {
  peek_facts p;
  expect(judge_peeking(p), severity::ok, "");
  p.sibling_error = EPERM;
  p.ptrace_scope = 1;
  expect(judge_peeking(p), severity::hint, "ptrace_scope 1");
  EXPECT_THAT(judge_peeking(p).remedy, HasSubstr("ptrace_scope=0"));
  p.ptrace_scope = -1;
  EXPECT_THAT(judge_peeking(p).remedy, HasSubstr("SYS_PTRACE"));
  p.self_error = ENOSYS;
  expect(judge_peeking(p), severity::hint, "a wrong one crashes");
}

// ---- engines

TEST(Engine, AbsentIsAHintUnlessItIsAskedFor) {
  engine_facts f;
  f.name = "ucx";
  f.where_or_why = "no crosswarp_ucx.so in /usr/lib/crosswarp";
  expect(judge_engine(f, false), severity::hint, "no path");
  EXPECT_THAT(judge_engine(f, false).remedy, HasSubstr("libucx-dev"));
  f.built = true;
  EXPECT_THAT(judge_engine(f, false).remedy, HasSubstr("CROSSWARP_ENGINE_PATH"));
  expect(judge_engine(f, true), severity::problem, "CROSSWARP_ENGINE asks for it");
  f.there = true;
  f.where_or_why = "/usr/lib/crosswarp/crosswarp_ucx.so";
  expect(judge_engine(f, true), severity::ok, "/usr/lib");
}

TEST(Engine, BrokenIsAProblemAlways) {
  engine_facts f;
  f.name = "mpi";
  f.where_or_why = "libmpi.so.40: cannot open shared object file";
  expect(judge_engine(f, false), severity::problem, "libmpi.so.40");
  f.where_or_why = "Bus error";
  f.crashed = true;
  expect(judge_engine(f, false), severity::problem, "Bus error");
}

TEST(UcxAndGpus, MatterTogetherOnly) {
  engine_facts f;
  f.name = "ucx";
  f.gpu_memory = false;
  expect(judge_ucx_gpu(f, one_gpu()), severity::skipped, "no engine");
  f.there = true;
  f.library = "/usr/lib/libuct.so.0";
  expect(judge_ucx_gpu(f, {}), severity::skipped, "no GPU");
  expect(judge_ucx_gpu(f, one_gpu()), severity::hint, "libuct_cuda");
  f.gpu_memory = true;
  expect(judge_ucx_gpu(f, one_gpu()), severity::ok, "");
}

TEST(MpiLauncher, IsMissedWithItsEngineOnly) {
  engine_facts mpi;
  expect(judge_mpirun({}, mpi), severity::skipped, "");
  mpi.there = true;
  expect(judge_mpirun({}, mpi), severity::hint, "PATH");
  environment_facts e;
  e.mpirun = "/usr/bin/mpirun";
  expect(judge_mpirun(e, mpi), severity::ok, "/usr/bin/mpirun");
}

// ---- networks

TEST(Rdma, DevicesNodesPermissionsAndPorts) {
  rdma_facts f;
  expect(judge_rdma(f), severity::hint, "no device");
  f.devices = {"mlx5_0"};
  f.ports = {{"mlx5_0", 1, "DOWN", "InfiniBand"}};
  expect(judge_rdma(f), severity::hint, "no /dev/infiniband");
  f.nodes = {"/dev/infiniband/uverbs0"};
  expect(judge_rdma(f), severity::hint, "mlx5_0:1 DOWN InfiniBand");
  f.ports[0].state = "ACTIVE";
  expect(judge_rdma(f), severity::ok, "mlx5_0:1 ACTIVE");
  f.library_error = "libibverbs.so.1: cannot open";
  expect(judge_rdma(f), severity::problem, "libibverbs.so.1: cannot open");
  EXPECT_THAT(judge_rdma(f).remedy, HasSubstr("install libibverbs1"));
  f.forbidden = f.nodes;
  expect(judge_rdma(f), severity::problem, "may not open /dev/infiniband/uverbs0");
}

TEST(Rdma, EthernetNeedsAnAddressThatRoutersKnow) {
  rdma_facts f;
  f.devices = {"rxe0"};
  f.nodes = {"/dev/infiniband/uverbs0"};
  f.ports = {{"rxe0", 1, "ACTIVE", "Ethernet"}};
  expect(judge_rdma(f), severity::hint, "no GID of RoCE v2");
  EXPECT_THAT(judge_rdma(f).remedy, HasSubstr("ip addr add"));
  f.ports[0].gids = {{0, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2"},
                     {1, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1"}};
  expect(judge_rdma(f), severity::hint, "no GID of RoCE v2");
  f.ports[0].gids[1].type = "RoCE v2";
  expect(judge_rdma(f), severity::ok, "rxe0:1 ACTIVE Ethernet");
  f.ports[0].gids.clear();
  f.ports[0].link = "InfiniBand";
  expect(judge_rdma(f), severity::ok, "");
}

TEST(GpuRdma, SaysWhatIsMissingOneAfterTheOther) {
  rdma_facts f;
  cuda_facts cuda;
  expect(judge_gpu_rdma(f, cuda), severity::skipped, "no GPU");
  cuda.gpus = {{"H200", 90}};
  expect(judge_gpu_rdma(f, cuda), severity::hint, "no mlx5 adapter");
  f.mlx5 = {"mlx5_0"};
  expect(judge_gpu_rdma(f, cuda), severity::hint, "mlx5_0 cannot read the memory of GPUs");
  EXPECT_THAT(judge_gpu_rdma(f, cuda).remedy, HasSubstr("nvidia_peermem"));
  f.peer_memory = true;
  expect(judge_gpu_rdma(f, cuda), severity::hint, "may not write the doorbells of mlx5_0");
  EXPECT_THAT(judge_gpu_rdma(f, cuda).remedy, HasSubstr("PeerMappingOverride=1"));
  f.may_map_doorbells = true;
  expect(judge_gpu_rdma(f, cuda), severity::ok, "mlx5_0, by nvidia_peermem");
  f.peer_memory = false;
  cuda.driver_file = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.0";
  expect(judge_gpu_rdma(f, cuda), severity::ok, "mlx5_0, by dma-buf");
}

TEST(Network, LoopbackIsNeededNamesAreNot) {
  network_facts f;
  f.host_name = "here";
  f.advertised = "10.0.0.1";
  expect(judge_loopback(f), severity::ok, "");
  expect(judge_host_name(f), severity::ok, "10.0.0.1");
  f.loopback_error = "Network is unreachable";
  expect(judge_loopback(f), severity::problem, "unreachable");
  f.resolve_error = "Name or service not known";
  expect(judge_host_name(f), severity::hint, "does not resolve");
  f.advertised = "127.0.0.1";
  expect(judge_host_name(f), severity::hint, "this machine only");
}

finding there(passage p) {
  reach_facts f;
  f.where = "other:7000";
  f.there = p;
  f.there_why = "the system's words";
  const auto all = judge_reach(f);
  EXPECT_EQ(all.size(), 1U);
  return all.front();
}

TEST(Reach, EachWayToFailMeansSomethingElse) {
  expect(there(passage::refused), severity::problem, "nothing listens there");
  expect(there(passage::timed_out), severity::problem, "no answer at all");
  EXPECT_THAT(there(passage::timed_out).remedy, HasSubstr("firewall drops"));
  expect(there(passage::unreachable), severity::problem, "the system's words");
  EXPECT_THAT(there(passage::unreachable).remedy, HasSubstr("route"));
  expect(there(passage::unknown_host), severity::problem, "unknown host");
  expect(there(passage::failed), severity::problem, "the system's words");
  expect(there(passage::open), severity::hint, "no doctor");
}

TEST(Reach, TheWayBackIsAWayOfItsOwn) {
  reach_facts f;
  f.where = "other:7000";
  f.there = passage::open;
  f.answered = true;
  f.microseconds = 42;
  f.back = passage::timed_out;
  auto all = judge_reach(f);
  ASSERT_EQ(all.size(), 2U);
  expect(all[0], severity::ok, "round trip 42 us");
  expect(all[1], severity::problem, "no answer");
  EXPECT_EQ(exit_code(all), 1);
  f.back = passage::refused;  // the doctor does listen: only a firewall can refuse
  EXPECT_THAT(judge_reach(f)[1].remedy, HasSubstr("firewall on this side"));
  EXPECT_THAT(judge_answer(f)[1].remedy, HasSubstr("firewall over there"));
  f.back = passage::open;
  EXPECT_EQ(exit_code(judge_reach(f)), 0);
  EXPECT_EQ(exit_code(judge_answer(f)), 0);
}

// ---- the environment

TEST(Variables, AreComparedWithThoseThatAreRead) {
  environment_facts e;
  auto all = judge_variables(e);
  ASSERT_EQ(all.size(), 1U);
  expect(all[0], severity::ok, "");
  e.unknown = {"CROSSWARP_HAEP", "CROSSWARP_SOMETHING_ELSE", "CROSSWARP_X"};
  all = judge_variables(e);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_THAT(all[2].remedy, HasSubstr("unset")) << "a letter is like nothing";
  expect(all[0], severity::hint, "CROSSWARP_HAEP");
  EXPECT_EQ(all[0].remedy, "did you mean CROSSWARP_HEAP?");
  expect(all[1], severity::hint, "CROSSWARP_SOMETHING_ELSE");
  EXPECT_THAT(all[1].remedy, HasSubstr("unset"));
}

std::vector<finding> settings(std::map<std::string, std::string> set, bool mpi_launcher = false) {
  environment_facts e;
  e.set = std::move(set);
  e.mpi_launcher = mpi_launcher;
  return judge_settings(e);
}

TEST(Settings, ThatContradictEachOther) {
  EXPECT_EQ(exit_code(settings({})), 0);
  EXPECT_EQ(exit_code(settings({{"CROSSWARP_PATH", "mapped"}})), 0);
  EXPECT_EQ(exit_code(settings({{"CROSSWARP_PATH", "mapped"}, {"CROSSWARP_NODES", "1"}})), 0);
  EXPECT_EQ(exit_code(settings({{"CROSSWARP_PATH", "mapped"}, {"CROSSWARP_NODES", "2"}})), 1);
  EXPECT_EQ(exit_code(settings({{"CROSSWARP_ENGINE", "local"}, {"CROSSWARP_NODES", "2"}})), 1);
  EXPECT_EQ(exit_code(settings({{"CROSSWARP_ENGINE", "ucx"}, {"CROSSWARP_NODES", "2"}})), 0);
  EXPECT_EQ(exit_code(settings({{"CROSSWARP_ENGINE", "abacus"}})), 1);
  EXPECT_EQ(exit_code(settings({{"CROSSWARP_SIZE", "2"}})), 1);
}

TEST(Settings, EngineMpiBelongsToJobsOfMpirun) {
  expect(settings({{"CROSSWARP_ENGINE", "mpi"}}).front(), severity::hint, "mpirun");
  expect(settings({{"CROSSWARP_ENGINE", "mpi"}, {"CROSSWARP_BOOTSTRAP", "tcp:here:1"}}).front(),
         severity::problem, "mpirun");
  expect(settings({{"CROSSWARP_ENGINE", "mpi"}}, true).front(), severity::ok, "");
}

TEST(Settings, ThatTheLibraryRefuses) {
  environment_facts e;
  e.refused = "CROSSWARP_QUEUE_DEPTH: invalid argument: a power of two from 2 to 65536";
  expect(judge_settings(e).front(), severity::problem, "a power of two");
}

// ---- looking at folders made for the purpose

class Folder : public testing::Test {
 protected:
  Folder() {
    std::string name = (fs::temp_directory_path() / "doctor-test-XXXXXX").string();
    root = mkdtemp(name.data());
  }
  ~Folder() override { fs::remove_all(root); }
  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  }
  fs::path root;
};

TEST_F(Folder, QuotaOfVersion2IsTheSmallestOnTheWayUp) {
  EXPECT_EQ(cpu_quota("0::/a/b\n", root), std::nullopt);
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota("0::/a/b\n", root), std::nullopt);
  write("a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota("0::/a/b\n", root), 1.5);
  write("a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota("0::/a/b\n", root), 1.5);
  EXPECT_EQ(cpu_quota("0::/\n", root), std::nullopt);
}

// In a container the path is the host's, and what is mounted is the container's own group.
TEST_F(Folder, QuotaOfAContainerIsAtTheRoot) {
  write("cpu.max", "200000 100000\n");
  EXPECT_EQ(cpu_quota("0::/docker/0123\n", root), 2);
}

TEST_F(Folder, QuotaOfVersion1) {
  const std::string membership = "5:memory:/m\n4:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n";
  EXPECT_EQ(cpu_quota(membership, root), std::nullopt);
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpu_quota(membership, root), std::nullopt);
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(cpu_quota(membership, root), 0.5);
}

TEST_F(Folder, QuotaOfNonsenseIsNone) {
  write("cpu.max", "nonsense");
  for (const char* text : {"", "\n", "nonsense", "0::", "::::", "4:cpu"}) {
    EXPECT_EQ(cpu_quota(text, root), std::nullopt) << text;
  }
}

TEST_F(Folder, RdmaDevicesAreFound) {
  EXPECT_THAT(probe_rdma(root / "sys", root / "dev").devices, IsEmpty());
  write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n");
  write("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
  write("dev/infiniband/uverbs0", "");
  write("dev/infiniband/rdma_cm", "");
  const rdma_facts f = probe_rdma(root / "sys", root / "dev");
  EXPECT_THAT(f.devices, testing::ElementsAre("mlx5_0"));
  ASSERT_EQ(f.ports.size(), 2U);
  EXPECT_EQ(f.ports[0].number, 1);
  EXPECT_EQ(f.ports[0].state, "ACTIVE");
  EXPECT_EQ(f.ports[0].link, "Ethernet");
  EXPECT_EQ(f.ports[1].state, "DOWN");
  EXPECT_EQ(f.nodes.size(), 1U);
  EXPECT_THAT(f.forbidden, IsEmpty());
  EXPECT_FALSE(f.rxe_module);
  EXPECT_FALSE(f.peer_memory);
  EXPECT_THAT(f.mlx5, IsEmpty());
}

TEST_F(Folder, GidsDriversAndRightsAreFound) {
  const fs::path device = root / "sys/class/infiniband/mlx5_0";
  write("sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80::1\n");
  write("sys/class/infiniband/mlx5_0/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  write("sys/class/infiniband/mlx5_0/ports/1/gids/10", "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
  write("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/10", "RoCE v2\n");
  write("sys/module/nvidia_peermem/version", "1\n");
  fs::create_directories(device / "device");
  fs::create_symlink("../../../bus/pci/drivers/mlx5_core", device / "device/driver");
  write("proc/driver/nvidia/params", "RegistryDwords: \"PeerMappingOverride=1;\"\n");
  const rdma_facts f = probe_rdma(root / "sys", root / "dev", root / "proc");
  ASSERT_EQ(f.ports.size(), 1U);
  ASSERT_EQ(f.ports[0].gids.size(), 2U) << "empty places are none";
  EXPECT_EQ(f.ports[0].gids[0].index, 0);
  EXPECT_EQ(f.ports[0].gids[1].index, 10);
  EXPECT_EQ(f.ports[0].gids[1].type, "RoCE v2");
  EXPECT_TRUE(f.ports[0].gids[1].is_ipv4());
  EXPECT_THAT(f.mlx5, testing::ElementsAre("mlx5_0"));
  EXPECT_TRUE(f.peer_memory);
  EXPECT_TRUE(f.may_map_doorbells);
}

// ---- looking at the MPS control daemon's pipe

TEST_F(Folder, MpsAnswersWhenSomebodyReadsItsPipe) {
  setenv("CUDA_MPS_PIPE_DIRECTORY", root.c_str(), 1);
  EXPECT_FALSE(probe_mps().answers) << "nothing is there";
  ASSERT_EQ(mkfifo((root / "control").c_str(), 0600), 0);
  EXPECT_FALSE(probe_mps().answers) << "left behind by one that is dead";
  const int reader = open((root / "control").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_TRUE(probe_mps().answers);
  EXPECT_TRUE(probe_mps().folder_from_environment);
  close(reader);
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  EXPECT_EQ(probe_mps().folder, "/tmp/nvidia-mps");
}

}  // namespace
