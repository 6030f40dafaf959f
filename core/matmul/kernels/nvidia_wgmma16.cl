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
// With SLICES above 1 a tile's f32 sums go to memory as the work-items hold them, slice by slice; the kernel
// add_slices adds them up and rounds.
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
        uint row0 = m0 + part_m * PART_ROWS + (warp & 3) * 16 + lane / 4, col0 = n0 + part_n * PART_COLS;     \
        __global ushort *to = out + (batch / inner_batches) * out_outer + (batch % inner_batches) * out_inner; \
        _Pragma("unroll") for (uint i = 0; i < M_STEPS; i++)                                                 \
            _Pragma("unroll") for (uint half_ = 0; half_ < 2; half_++) {                                     \
                uint row = row0 + 64 * i + 8 * half_;                                                        \
                _Pragma("unroll") for (uint j = 0; j + 1 < PART_COLS / 32; j += 2)                           \
                    store_64_columns(to, out_row, row, m, col0 + 32 * j, n, wide_stores, lane,               \
                                     PAIRS(i, j, half_), PAIRS(i, j + 1, half_));                            \
                if (PART_COLS % 64)                                                                          \
                    store_32_columns(to + row * out_row, row < m, col0 + PART_COLS - 32, n, wide_stores, lane & 3, \
                                     PAIRS(i, PART_COLS / 32 - 1, half_));                                   \
            }                                                                                                \
    } while (0)
#define PAIRS(i, j, half_) \
    ((uint4)(PAIR(i, j, 0, half_), PAIR(i, j, 1, half_), PAIR(i, j, 2, half_), PAIR(i, j, 3, half_)))
#define PAIR(i, j, block, half_) \
    pack_pair(acc[i][16 * (j) + 4 * (block) + 2 * (half_)], acc[i][16 * (j) + 4 * (block) + 2 * (half_) + 1])

// 32 columns of a row: of each 8 a lane of the quad holds a pair. All lanes of a warp come here.
static inline void store_32_columns(__global ushort *to, bool inside, uint col, uint n, uint wide, uint quad, uint4 v)
{
    if (wide) {
        v = gather_columns(v, quad);
        if (inside) store_columns(to, col + 8 * quad, n, v);
    } else if (inside) {
        store_pair(to, col + 2 * quad, n, 0, v.x);
        store_pair(to, col + 8 + 2 * quad, n, 0, v.y);
        store_pair(to, col + 16 + 2 * quad, n, 0, v.z);
        store_pair(to, col + 24 + 2 * quad, n, 0, v.w);
    }
}

// 64 columns of a row. Lanes of two neighbouring rows exchange halves first, so that eight of them write a whole
// line of one row, and then of the other.
static inline void store_64_columns(__global ushort *to, long out_row, uint row, uint m, uint col, uint n, uint wide,
                                    uint lane, uint4 left, uint4 right)
{
    if (!wide) {
        store_32_columns(to + row * out_row, row < m, col, n, wide, lane & 3, left);
        store_32_columns(to + row * out_row, row < m, col + 32, n, wide, lane & 3, right);
        return;
    }
    bool odd = lane & 4;
    left = gather_columns(left, lane & 3);
    right = gather_columns(right, lane & 3);
    uint4 give = odd ? left : right;
    uint4 got = (uint4)(exchange(give.x, 4), exchange(give.y, 4), exchange(give.z, 4), exchange(give.w, 4));
    uint even_row = row - (odd ? 1 : 0);
    col += 8 * (lane & 7);
    if (even_row < m) store_columns(to + even_row * out_row, col, n, odd ? got : left);
    if (even_row + 1 < m) store_columns(to + (even_row + 1) * out_row, col, n, odd ? right : got);
}

#if SLICES > 1
// A work-item's sums, 16 bytes of each work-item together.
#define SUMS (M_STEPS * PART_COLS / 2)
#define SUM(c) acc[(c) / (PART_COLS / 2)][(c) % (PART_COLS / 2)]
#define FINISH_TILE(index)                                                                                   \
    do {                                                                                                     \
        __global float4 *to = (__global float4 *)out + (ulong)(index) * (SUMS / 4 * WORKERS) + thread;       \
        _Pragma("unroll") for (uint c = 0; c < SUMS / 4; c++)                                                \
            to[c * WORKERS] = (float4)(SUM(4 * c), SUM(4 * c + 1), SUM(4 * c + 2), SUM(4 * c + 3));          \
    } while (0)

// A work-group adds up a chunk of a tile: 32 columns of 64 rows of every warp group, four pieces of a work-item.
#define CHUNKS (M_STEPS * PART_COLS / 32)
__kernel __attribute__((reqd_work_group_size(WORKERS, 1, 1)))
void add_slices(__global const float4 *parts, __global ushort *out, long out_offset, long out_row, long out_outer,
                long out_inner, uint m, uint n, uint tiles_m, uint tiles_n, uint batches, uint inner_batches, uint wide_stores)
{
    uint thread = get_local_id(0), warp = thread / 32, lane = thread % 32, part = warp / 4;
    uint item = get_group_id(0) / CHUNKS, chunk = get_group_id(0) % CHUNKS;
    LOCATE_ITEM(item);
    __global const float4 *from = parts + ((ulong)item * (SUMS / 4) + 4 * chunk) * WORKERS + thread;
    ulong slice = (ulong)tiles_m * tiles_n * batches * (SUMS / 4 * WORKERS);
    float4 sums[4];
    #pragma unroll
    for (uint c = 0; c < 4; c++) sums[c] = from[c * WORKERS];
    #pragma unroll
    for (uint s = 1; s < SLICES; s++)
        #pragma unroll
        for (uint c = 0; c < 4; c++) sums[c] += from[s * slice + c * WORKERS];

    out += out_offset + (batch / inner_batches) * out_outer + (batch % inner_batches) * out_inner;
    uint row = m0 + part / GROUPS_N * PART_ROWS + chunk / (PART_COLS / 32) * 64 + (warp & 3) * 16 + lane / 4;
    uint col = n0 + part % GROUPS_N * PART_COLS + chunk % (PART_COLS / 32) * 32;
    uint4 upper = (uint4)(pack_pair(sums[0].x, sums[0].y), pack_pair(sums[1].x, sums[1].y),
                          pack_pair(sums[2].x, sums[2].y), pack_pair(sums[3].x, sums[3].y));
    uint4 lower = (uint4)(pack_pair(sums[0].z, sums[0].w), pack_pair(sums[1].z, sums[1].w),
                          pack_pair(sums[2].z, sums[2].w), pack_pair(sums[3].z, sums[3].w));
    store_32_columns(out + row * out_row, row < m, col, n, wide_stores, lane & 3, upper);
    store_32_columns(out + (row + 8) * out_row, row + 8 < m, col, n, wide_stores, lane & 3, lower);
}
#else
#define FINISH_TILE(index) STORE_TILE()
#endif

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
        PRODUCER_STARTS();
        produce(work, base, full, empty, total, steps, thread - WORKERS);
        return;
    }
#endif
    WORKERS_START();
    uint part = warp / 4, part_m = part / GROUPS_N, part_n = part % GROUPS_N, slot = 0, phase = 0;
#if HAS_PRODUCER
    for (uint index = get_group_id(0); index < total; index += get_num_groups(0)) {
        LOCATE_TILE(index);
        float acc[M_STEPS][PART_COLS / 2];
        CLEAR_TILE();
        uint previous = 0;
        for (uint step = first_step; step < last_step; step++) {
            barrier_wait(full + 8 * slot, phase);
            MULTIPLY(base + slot * STAGE_BYTES, 0, BK / 16);
            PRODUCTS_WAIT(1);
            if (step > first_step && lane == 0) barrier_arrive(empty + 8 * previous);
            previous = slot;
            if (++slot == STAGES) { slot = 0; phase ^= 1; }
        }
        SETTLE_TILE();
        if (lane == 0) barrier_arrive(empty + 8 * previous);
        FINISH_TILE(index);
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
