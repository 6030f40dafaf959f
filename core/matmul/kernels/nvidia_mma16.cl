// 16-bit operands on warp-wide matrix instructions (mma.sync, any NVIDIA device from 8.0): out = lhs . rhs.
//
// A work-group makes BM x BN tiles, k in steps of 64; each warp keeps a WARP_M x WARP_N part of a tile in
// registers and gathers its fragments from shared memory with ldmatrix, transposing on the way where the
// operand is not contiguous along k.
//
// With K_PARTS 2 a stage is multiplied in two parts of k, in order, and refilling happens between them.
//
// Defined by the build, besides what the shared part needs: WARP_M WARP_N K_PARTS and MMA, the instruction.

#define WARPS_N (BN / WARP_N)
#define M_STEPS (WARP_M / 16)
#define N_STEPS (WARP_N / 8)

static inline uint4 gather_rows(uint from)
{
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    return v;
}

static inline uint4 gather_transposed(uint from)
{
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    return v;
}

// Address of the 16-byte piece that holds (row, 8 * piece ...) of a block whose rows are 128 bytes.
static inline uint piece_at(uint block, uint row, uint piece) { return block + row * ROW_BYTES + ((piece ^ (row & 7)) << 4); }

// 16 x 16 of lhs at row m, k-step kk: quarters (m, k) (m+8, k) (m, k+8) (m+8, k+8).
static inline uint4 lhs_fragment(uint tile, uint m, uint kk, uint lane)
{
#if LHS_K_CONTIGUOUS
    return gather_rows(piece_at(tile, m + lane % 16, 2 * kk + lane / 16));
#else
    uint quarter = lane / 8, col = m + 8 * (quarter & 1);
    return gather_transposed(piece_at(tile + col / 64 * BLOCK_BYTES, 16 * kk + 8 * (quarter >> 1) + lane % 8, col % 64 / 8));
#endif
}

// 16 x 16 of rhs at column n, k-step kk: quarters (k, n) (k+8, n) (k, n+8) (k+8, n+8).
static inline uint4 rhs_fragment(uint tile, uint n, uint kk, uint lane)
{
#if RHS_K_CONTIGUOUS
    uint quarter = lane / 8;
    return gather_rows(piece_at(tile, n + 8 * (quarter >> 1) + lane % 8, 2 * kk + (quarter & 1)));
#else
    uint col = n + 8 * (lane / 16);
    return gather_transposed(piece_at(tile + col / 64 * BLOCK_BYTES, 16 * kk + lane % 16, col % 64 / 8));
#endif
}

#define PRODUCT(d, a, b0, b1)                                                                                \
    asm volatile(TEXT(MMA) " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                \
                 : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])                                    \
                 : "r"((a).x), "r"((a).y), "r"((a).z), "r"((a).w), "r"(b0), "r"(b1))

#define MULTIPLY(stage, from, to)                                                                              \
    _Pragma("unroll") for (uint kk = (from); kk < (to); kk++) {                                              \
        uint4 a[M_STEPS], b[N_STEPS / 2];                                                                    \
        _Pragma("unroll") for (uint i = 0; i < M_STEPS; i++)                                                 \
            a[i] = lhs_fragment((stage), warp_m * WARP_M + 16 * i, kk, lane);                                \
        _Pragma("unroll") for (uint j = 0; j < N_STEPS / 2; j++)                                             \
            b[j] = rhs_fragment((stage) + LHS_BYTES, warp_n * WARP_N + 16 * j, kk, lane);                    \
        _Pragma("unroll") for (uint i = 0; i < M_STEPS; i++)                                                 \
            _Pragma("unroll") for (uint j = 0; j < N_STEPS / 2; j++) {                                       \
                PRODUCT(acc[i][2 * j], a[i], b[j].x, b[j].y);                                                \
                PRODUCT(acc[i][2 * j + 1], a[i], b[j].z, b[j].w);                                            \
            }                                                                                                \
    }

#define CLEAR_TILE()                                                                                         \
    _Pragma("unroll") for (uint i = 0; i < M_STEPS; i++)                                                     \
        _Pragma("unroll") for (uint j = 0; j < N_STEPS; j++)                                                 \
            _Pragma("unroll") for (uint c = 0; c < 4; c++) acc[i][j][c] = 0.0f

// acc[i][j][c] is row lane/4 + 8*(c/2) of 16, column 2*(lane%4) + c%2 of 8.
#define PAIR(i, j, half_) pack_pair(acc[i][j][2 * (half_)], acc[i][j][2 * (half_) + 1])
#define STORE_TILE()                                                                                         \
    do {                                                                                                     \
        uint quad = lane & 3, row0 = m0 + warp_m * WARP_M + lane / 4, col0 = n0 + warp_n * WARP_N;            \
        __global ushort *to = out + (batch / inner_batches) * out_outer + (batch % inner_batches) * out_inner; \
        _Pragma("unroll") for (uint i = 0; i < M_STEPS; i++)                                                 \
            _Pragma("unroll") for (uint half_ = 0; half_ < 2; half_++) {                                     \
                uint row = row0 + 16 * i + 8 * half_;                                                        \
                _Pragma("unroll") for (uint j = 0; j < N_STEPS; j++)                                         \
                    if (row < m) store_pair(to + row * out_row, col0 + 8 * j + 2 * quad, n, wide_stores, PAIR(i, j, half_)); \
            }                                                                                                \
    } while (0)

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void matmul(MATMUL_ARGUMENTS)
{
    MATMUL_SETUP();
#if HAS_PRODUCER
    if (warp >= WORKERS / 32) {
        PRODUCER_STARTS();
        produce(work, base, full, empty, total, steps, thread - WORKERS);
        return;
    }
#endif
    WORKERS_START();
    uint warp_m = warp / WARPS_N, warp_n = warp % WARPS_N, slot = 0, phase = 0;
#if HAS_PRODUCER
    for (uint index = get_group_id(0); index < total; index += get_num_groups(0)) {
        LOCATE_TILE(index);
        float acc[M_STEPS][N_STEPS][4];
        CLEAR_TILE();
        for (uint step = first_step; step < last_step; step++) {
            barrier_wait(full + 8 * slot, phase);
            converge_warp();
            MULTIPLY(base + slot * STAGE_BYTES, 0, BK / 16)
            converge_warp();
            if (lane == 0) barrier_arrive(empty + 8 * slot);
            if (++slot == STAGES) { slot = 0; phase ^= 1; }
        }
        STORE_TILE();
    }
#else
    LOCATE_TILE(get_group_id(0));
    float acc[M_STEPS][N_STEPS][4];
    CLEAR_TILE();
    for (uint i = 0; i < STAGES - 1; i++) {
        if (i < steps) FILL(i, i);
        FILL_DONE();
    }
    uint refill = STAGES - 1;
    for (uint step = 0; step < steps; step++) {
        FILL_WAIT(slot, phase);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (K_PARTS == 2) MULTIPLY(base + slot * STAGE_BYTES, 0, BK / 32)
        if (step + STAGES - 1 < steps) FILL(step + STAGES - 1, refill);
        FILL_DONE();
        MULTIPLY(base + slot * STAGE_BYTES, BK / 16 - BK / 16 / K_PARTS, BK / 16)
        if (++refill == STAGES) refill = 0;
        if (++slot == STAGES) { slot = 0; phase ^= 1; }
    }
    STORE_TILE();
#endif
}
