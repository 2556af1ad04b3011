// Our formats against those of rdma-core: places, values and the bytes that its helpers write.
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <cstring>

#include "crosswarp/device/mlx5.hpp"

namespace {

namespace mlx5 = crosswarp::device::mlx5;

// ---- sizes and places

static_assert(sizeof(mlx5::ctrl_segment) == sizeof(mlx5_wqe_ctrl_seg));
static_assert(offsetof(mlx5::ctrl_segment, opmod_idx_opcode) ==
              offsetof(mlx5_wqe_ctrl_seg, opmod_idx_opcode));
static_assert(offsetof(mlx5::ctrl_segment, qpn_ds) == offsetof(mlx5_wqe_ctrl_seg, qpn_ds));
static_assert(offsetof(mlx5::ctrl_segment, signature) == offsetof(mlx5_wqe_ctrl_seg, signature));
static_assert(offsetof(mlx5::ctrl_segment, dci_stream_channel_id) ==
              offsetof(mlx5_wqe_ctrl_seg, dci_stream_channel_id));
static_assert(offsetof(mlx5::ctrl_segment, fm_ce_se) == offsetof(mlx5_wqe_ctrl_seg, fm_ce_se));
static_assert(offsetof(mlx5::ctrl_segment, imm) == offsetof(mlx5_wqe_ctrl_seg, imm));

static_assert(sizeof(mlx5::raddr_segment) == sizeof(mlx5_wqe_raddr_seg));
static_assert(offsetof(mlx5::raddr_segment, raddr) == offsetof(mlx5_wqe_raddr_seg, raddr));
static_assert(offsetof(mlx5::raddr_segment, rkey) == offsetof(mlx5_wqe_raddr_seg, rkey));

static_assert(sizeof(mlx5::data_segment) == sizeof(mlx5_wqe_data_seg));
static_assert(offsetof(mlx5::data_segment, byte_count) == offsetof(mlx5_wqe_data_seg, byte_count));
static_assert(offsetof(mlx5::data_segment, lkey) == offsetof(mlx5_wqe_data_seg, lkey));
static_assert(offsetof(mlx5::data_segment, addr) == offsetof(mlx5_wqe_data_seg, addr));

static_assert(sizeof(mlx5::next_segment) == sizeof(mlx5_wqe_srq_next_seg));
static_assert(offsetof(mlx5::next_segment, next) ==
              offsetof(mlx5_wqe_srq_next_seg, next_wqe_index));

static_assert(sizeof(mlx5::atomic_segment) == sizeof(mlx5_wqe_atomic_seg));
static_assert(offsetof(mlx5::atomic_segment, swap_add) == offsetof(mlx5_wqe_atomic_seg, swap_add));
static_assert(offsetof(mlx5::atomic_segment, compare) == offsetof(mlx5_wqe_atomic_seg, compare));
static_assert(sizeof(mlx5::inline_segment) == sizeof(mlx5_wqe_inl_data_seg));

static_assert(sizeof(mlx5::cqe64) == sizeof(mlx5_cqe64));
static_assert(sizeof(mlx5::cqe64) == sizeof(mlx5_err_cqe));
static_assert(mlx5::cqe_offset::imm == offsetof(mlx5_cqe64, imm_inval_pkey));
static_assert(mlx5::cqe_offset::byte_cnt == offsetof(mlx5_cqe64, byte_cnt));
static_assert(mlx5::cqe_offset::vendor_syndrome == offsetof(mlx5_err_cqe, vendor_err_synd));
static_assert(mlx5::cqe_offset::syndrome == offsetof(mlx5_err_cqe, syndrome));
static_assert(mlx5::cqe_offset::sop_drop_qpn == offsetof(mlx5_cqe64, sop_drop_qpn));
static_assert(mlx5::cqe_offset::sop_drop_qpn == offsetof(mlx5_err_cqe, s_wqe_opcode_qpn));
static_assert(mlx5::cqe_offset::wqe_counter == offsetof(mlx5_cqe64, wqe_counter));
static_assert(mlx5::cqe_offset::wqe_counter == offsetof(mlx5_err_cqe, wqe_counter));
static_assert(mlx5::cqe_offset::op_own == offsetof(mlx5_cqe64, op_own));
static_assert(mlx5::cqe_offset::op_own == offsetof(mlx5_err_cqe, op_own));

// ---- values

template <class Ours>
constexpr bool is(Ours ours, unsigned theirs) {
  return static_cast<unsigned>(ours) == theirs;
}
using mlx5::cqe_opcode;
using mlx5::opcode;
using mlx5::syndrome;
static_assert(is(opcode::nop, MLX5_OPCODE_NOP));
static_assert(is(opcode::rdma_write, MLX5_OPCODE_RDMA_WRITE));
static_assert(is(opcode::rdma_write_imm, MLX5_OPCODE_RDMA_WRITE_IMM));
static_assert(is(opcode::send, MLX5_OPCODE_SEND));
static_assert(is(opcode::send_imm, MLX5_OPCODE_SEND_IMM));
static_assert(is(opcode::rdma_read, MLX5_OPCODE_RDMA_READ));
static_assert(is(opcode::atomic_cs, MLX5_OPCODE_ATOMIC_CS));
static_assert(is(opcode::atomic_fa, MLX5_OPCODE_ATOMIC_FA));
static_assert(is(opcode::atomic_masked_cs, MLX5_OPCODE_ATOMIC_MASKED_CS));
static_assert(is(opcode::atomic_masked_fa, MLX5_OPCODE_ATOMIC_MASKED_FA));

static_assert(is(mlx5::ctrl_cq_update, MLX5_WQE_CTRL_CQ_UPDATE));
static_assert(is(mlx5::ctrl_solicited, MLX5_WQE_CTRL_SOLICITED));
static_assert(is(mlx5::ctrl_fence, MLX5_WQE_CTRL_FENCE));
static_assert(is(mlx5::inline_flag, MLX5_INLINE_SEG));
static_assert(is(mlx5::invalid_lkey, MLX5_INVALID_LKEY));
static_assert(is(mlx5::block_bytes, MLX5_SEND_WQE_BB));

static_assert(is(cqe_opcode::requester, MLX5_CQE_REQ));
static_assert(is(cqe_opcode::responder_write_imm, MLX5_CQE_RESP_WR_IMM));
static_assert(is(cqe_opcode::responder_send, MLX5_CQE_RESP_SEND));
static_assert(is(cqe_opcode::responder_send_imm, MLX5_CQE_RESP_SEND_IMM));
static_assert(is(cqe_opcode::requester_error, MLX5_CQE_REQ_ERR));
static_assert(is(cqe_opcode::responder_error, MLX5_CQE_RESP_ERR));
static_assert(is(cqe_opcode::invalid, MLX5_CQE_INVALID));
static_assert(is(mlx5::cqe_owner_bit, MLX5_CQE_OWNER_MASK));

static_assert(is(syndrome::local_length, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR));
static_assert(is(syndrome::local_qp_operation, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR));
static_assert(is(syndrome::local_protection, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR));
static_assert(is(syndrome::flushed, MLX5_CQE_SYNDROME_WR_FLUSH_ERR));
static_assert(is(syndrome::bad_response, MLX5_CQE_SYNDROME_BAD_RESP_ERR));
static_assert(is(syndrome::local_access, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR));
static_assert(is(syndrome::remote_invalid_request, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR));
static_assert(is(syndrome::remote_access, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR));
static_assert(is(syndrome::remote_operation, MLX5_CQE_SYNDROME_REMOTE_OP_ERR));
static_assert(is(syndrome::retries_exceeded, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR));
static_assert(is(syndrome::receiver_not_ready, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR));
static_assert(is(syndrome::remote_aborted, MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR));

static_assert(mlx5::qp_record::receive == MLX5_RCV_DBR);
static_assert(mlx5::qp_record::send == MLX5_SND_DBR);

// ---- bytes

template <class Ours, class Theirs>
bool same_bytes(const Ours& ours, const Theirs& theirs) {
  static_assert(sizeof(Ours) == sizeof(Theirs));
  return std::memcmp(&ours, &theirs, sizeof(Ours)) == 0;
}

TEST(Mlx5Format, ControlSegmentsHaveTheBytesOfRdmaCore) {
  struct sample {
    std::uint16_t index;
    opcode op;
    std::uint8_t opmod;
    std::uint32_t qpn;
    std::uint8_t flags;
    std::uint8_t units;
    std::uint32_t imm;
  };
  const sample all[] = {
      {0, opcode::nop, 0, 1, 0, 1, 0},
      {0x1234, opcode::rdma_write, 0, 0xabcdef, mlx5::ctrl_cq_update, 3, 0},
      {0xffff, opcode::rdma_write_imm, 0, 0xffffff, mlx5::ctrl_fence, 63, 0x01020304},
      {0x8000, opcode::atomic_masked_cs, mlx5::opmod_atomic_8_bytes, 0x42, 0xff, 5, 0xfefefefe},
  };
  for (const sample& s : all) {
    mlx5_wqe_ctrl_seg theirs{};
    mlx5dv_set_ctrl_seg(&theirs, s.index, static_cast<std::uint8_t>(s.op), s.opmod, s.qpn, s.flags,
                        s.units, 0, s.imm);
    EXPECT_TRUE(
        same_bytes(mlx5::make_ctrl(s.index, s.op, s.opmod, s.qpn, s.flags, s.units, s.imm), theirs))
        << "index " << s.index;
  }
}

TEST(Mlx5Format, DataSegmentsHaveTheBytesOfRdmaCore) {
  const std::uint64_t addresses[] = {0, 1, 0x0123456789abcdef, ~std::uint64_t{0}};
  for (const std::uint64_t address : addresses) {
    for (const std::uint32_t bytes : {0U, 1U, 0x12345678U, 0x7fffffffU}) {
      mlx5_wqe_data_seg theirs{};
      mlx5dv_set_data_seg(&theirs, bytes, bytes ^ 0x55aaU, address);
      EXPECT_TRUE(same_bytes(mlx5::make_data(bytes, bytes ^ 0x55aaU, address), theirs));
    }
  }
}

TEST(Mlx5Format, RemoteAddressesAreBigEndian) {
  mlx5_wqe_raddr_seg theirs{};
  theirs.raddr = htobe64(0x0123456789abcdef);
  theirs.rkey = htobe32(0x11223344);
  EXPECT_TRUE(same_bytes(mlx5::make_raddr(0x0123456789abcdef, 0x11223344), theirs));
}

TEST(Mlx5Format, ADoorbellBeginsLikeAControlSegment) {
  for (const std::uint32_t index : {0U, 1U, 0xffffU, 0x12345U}) {
    const std::uint64_t bell = mlx5::make_doorbell(index, 0xabcdef);
    const auto head =
        mlx5::make_ctrl(static_cast<std::uint16_t>(index), opcode::nop, 0, 0xabcdef, 0, 0);
    EXPECT_EQ(std::memcmp(&bell, &head, sizeof(bell)), 0);
    EXPECT_EQ(mlx5::doorbell_index(bell), index & 0xffffU);
    EXPECT_EQ(mlx5::doorbell_qpn(bell), 0xabcdefU);
  }
}

TEST(Mlx5Format, FieldsOfACompletionAreReadFromItsWords) {
  mlx5_cqe64 theirs{};
  theirs.imm_inval_pkey = htobe32(0x01020304);
  theirs.byte_cnt = htobe32(0x05060708);
  theirs.sop_drop_qpn = htobe32(0x08abcdef);
  theirs.wqe_counter = htobe16(0xfffe);
  theirs.op_own = static_cast<std::uint8_t>(MLX5_CQE_RESP_WR_IMM << 4 | 1);
  mlx5::cqe64 ours{};
  std::memcpy(&ours, &theirs, sizeof(ours));
  const auto word = [&](std::size_t offset) { return ours.words[offset / 8]; };
  using namespace mlx5::cqe_offset;
  EXPECT_EQ(mlx5::cqe_field<std::uint32_t>(word(imm), imm), 0x01020304U);
  EXPECT_EQ(mlx5::cqe_field<std::uint32_t>(word(byte_cnt), byte_cnt), 0x05060708U);
  EXPECT_EQ(mlx5::cqe_field<std::uint32_t>(word(sop_drop_qpn), sop_drop_qpn), 0x08abcdefU);
  EXPECT_EQ(mlx5::cqe_field<std::uint16_t>(word(wqe_counter), wqe_counter), 0xfffeU);
  EXPECT_EQ(mlx5::cqe_field<std::uint8_t>(word(op_own), op_own), theirs.op_own);
}

TEST(Mlx5Format, CountersOfSixteenBitsAreExtendedAcrossTheWrap) {
  EXPECT_EQ(mlx5::extended(5, 5), 5U);
  EXPECT_EQ(mlx5::extended(2, 0xfffe), 0x10002U);
  EXPECT_EQ(mlx5::extended(0xffff, 0x2ffff), 0x2ffffU);
  EXPECT_EQ(mlx5::extended(0, (1ULL << 40U) - 1), 1ULL << 40U);
}

TEST(Mlx5Format, EntriesTakeAsManyBlocksAsTheirUnitsNeed) {
  EXPECT_EQ(mlx5::blocks_of(1), 1U);
  EXPECT_EQ(mlx5::blocks_of(4), 1U);
  EXPECT_EQ(mlx5::blocks_of(5), 2U);
  EXPECT_EQ(mlx5::inline_units(0), 1U);
  EXPECT_EQ(mlx5::inline_units(12), 1U);
  EXPECT_EQ(mlx5::inline_units(13), 2U);
  EXPECT_EQ(mlx5::inline_units(28), 2U);
}

}  // namespace
