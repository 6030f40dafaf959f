// 16-bit operands on Hopper's warp-group products: out = lhs . rhs, f32 accumulation.
//
//            BN                 A work-group makes BM x BN tiles, k in steps of 64. GROUPS_M x GROUPS_N
//       +---------+             warp groups (128 work-items each) share a tile; each keeps its part in
//       |   rhs   | 64          registers and multiplies straight from shared memory. Stages are filled
//       +---------+             as the shared part says.
//   64  | tile    |
// +----+|         |             With a producer the products of one stage still run while the next stage's
// |lhs ||         | BM          are issued; inline feeding awaits each stage's products before the next.
// +----++---------+
//
// With K_PARTS 2 a stage is multiplied in two parts of k, in order, and refilling happens between them.
//
// Defined by the build, besides what the shared part needs: GROUPS_M GROUPS_N K_PARTS, and the macros PRODUCT, PIN.

#define PART_ROWS (BM / GROUPS_M)
#define PART_COLS (BN / GROUPS_N)
#define M_STEPS (PART_ROWS / 64)

#if LHS_K_CONTIGUOUS
#define LHS_LEADING 16
#define LHS_STEP 32
#else
#define LHS_LEADING BLOCK_BYTES
#define LHS_STEP 2048
#endif
#if RHS_K_CONTIGUOUS
#define RHS_LEADING 16
#define RHS_STEP 32
#else
#define RHS_LEADING BLOCK_BYTES
#define RHS_STEP 2048
#endif

// acc += the product of the stage's k-steps `from` .. `to` of 16, issued and committed, not awaited.
// 64 rows (or columns) are 8 KiB further on.
#define MULTIPLY(stage, from, to)                                                                              \
    do {                                                                                                     \
        ulong lhs_ = tile_descriptor((stage) + part_m * M_STEPS * BLOCK_BYTES, LHS_LEADING, 1024);           \
        ulong rhs_ = tile_descriptor((stage) + LHS_BYTES + part_n * PART_COLS * ROW_BYTES, RHS_LEADING, 1024); \
        products_begin();                                                                                    \
        _Pragma("unroll") for (uint kk = (from); kk < (to); kk++)                                              \
            _Pragma("unroll") for (uint i = 0; i < M_STEPS; i++)                                             \
                PRODUCT(acc[i], lhs_ + ((i * BLOCK_BYTES + kk * LHS_STEP) >> 4), rhs_ + (kk * RHS_STEP >> 4)); \
        products_commit();                                                                                   \
    } while (0)

// Accumulator c of a warp group's 64 rows: row lane/4 + 8*(c/2%2), column 8*(c/4) + 2*(lane%4) + c%2.
#define STORE_TILE()                                                                                         \
    do {                                                                                                     \
        uint quad = lane & 3;                                                                                \
        uint row0 = m0 + part_m * PART_ROWS + (warp & 3) * 16 + lane / 4, col0 = n0 + part_n * PART_COLS;     \
        __global ushort *base = out + (batch / inner_batches) * out_outer + (batch % inner_batches) * out_inner; \
        _Pragma("unroll") for (uint i = 0; i < M_STEPS; i++)                                                 \
            _Pragma("unroll") for (uint half_ = 0; half_ < 2; half_++) {                                     \
                uint row = row0 + 64 * i + 8 * half_;                                                        \
                __global ushort *to = base + row * out_row;                                                  \
                _Pragma("unroll") for (uint j = 0; j < PART_COLS / 32; j++) {                                \
                    uint4 v = (uint4)(PAIR(i, j, 0, half_), PAIR(i, j, 1, half_), PAIR(i, j, 2, half_), PAIR(i, j, 3, half_)); \
                    if (wide_stores) {                                                                       \
                        v = gather_columns(v, quad);                                                         \
                        if (row < m) store_columns(to, col0 + 32 * j + 8 * quad, n, v);                      \
                    } else if (row < m) {                                                                    \
                        store_pair(to, col0 + 32 * j + 2 * quad, n, 0, v.x);                                  \
                        store_pair(to, col0 + 32 * j + 8 + 2 * quad, n, 0, v.y);                              \
                        store_pair(to, col0 + 32 * j + 16 + 2 * quad, n, 0, v.z);                             \
                        store_pair(to, col0 + 32 * j + 24 + 2 * quad, n, 0, v.w);                             \
                    }                                                                                        \
                }                                                                                            \
            }                                                                                                \
    } while (0)
#define PAIR(i, j, block, half_) \
    pack_pair(acc[i][16 * (j) + 4 * (block) + 2 * (half_)], acc[i][16 * (j) + 4 * (block) + 2 * (half_) + 1])

#define CLEAR_TILE()                                                                                         \
    _Pragma("unroll") for (uint i = 0; i < M_STEPS; i++)                                                     \
        _Pragma("unroll") for (uint c = 0; c < PART_COLS / 2; c++) acc[i][c] = 0.0f

#define SETTLE_TILE()                                                                                        \
    do {                                                                                                     \
        PRODUCTS_WAIT(0);                                                                                    \
        _Pragma("unroll") for (uint i = 0; i < M_STEPS; i++) PIN(acc[i]);                                    \
    } while (0)

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void matmul(MATMUL_ARGUMENTS)
{
    MATMUL_SETUP();
#if HAS_PRODUCER
    if (warp >= WORKERS / 32) {
        produce(work, base, full, empty, total, steps, thread - WORKERS);
        return;
    }
#endif
    uint part = warp / 4, part_m = part / GROUPS_N, part_n = part % GROUPS_N, slot = 0, phase = 0;
#if HAS_PRODUCER
    for (uint index = get_group_id(0); index < total; index += get_num_groups(0)) {
        LOCATE_TILE(index);
        float acc[M_STEPS][PART_COLS / 2];
        CLEAR_TILE();
        uint previous = 0;
        for (uint step = 0; step < steps; step++) {
            barrier_wait(full + 8 * slot, phase);
            MULTIPLY(base + slot * STAGE_BYTES, 0, BK / 16);
            PRODUCTS_WAIT(1);
            if (step > 0 && lane == 0) barrier_arrive(empty + 8 * previous);
            previous = slot;
            if (++slot == STAGES) { slot = 0; phase ^= 1; }
        }
        SETTLE_TILE();
        if (lane == 0) barrier_arrive(empty + 8 * previous);
        STORE_TILE();
    }
#else
    LOCATE_TILE(get_group_id(0));
    float acc[M_STEPS][PART_COLS / 2];
    CLEAR_TILE();
    for (uint i = 0; i < STAGES - 1; i++) {
        if (i < steps) FILL(i, i);
        FILL_DONE();
    }
    uint refill = STAGES - 1;
    for (uint step = 0; step < steps; step++) {
        FILL_WAIT(slot, phase);
        if (FEED == FEED_COPY_INLINE) publish_to_async();
        barrier(CLK_LOCAL_MEM_FENCE);
        MULTIPLY(base + slot * STAGE_BYTES, 0, BK / 16 / K_PARTS);
        if (step + STAGES - 1 < steps) FILL(step + STAGES - 1, refill);
        FILL_DONE();
        if (K_PARTS == 2) MULTIPLY(base + slot * STAGE_BYTES, BK / 32, BK / 16);
        PRODUCTS_WAIT(0);
        if (++refill == STAGES) refill = 0;
        if (++slot == STAGES) { slot = 0; phase ^= 1; }
    }
    SETTLE_TILE();
    STORE_TILE();
#endif
}
