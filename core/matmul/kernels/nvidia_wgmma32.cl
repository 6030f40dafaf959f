// f32 operands on Hopper's warp-group products in TF32: out = lhs . rhs.
//
// wgmma takes TF32 operands from shared memory only where k is contiguous. So the transposed product
// is made, out' = rhs' . lhs': lhs (rows along k) is the operand in shared memory, and rhs (rows along
// n) is read from shared memory into register fragments, which need no order of k.
//
//            BN = 64 * WARP_GROUPS * N_STEPS     A work-group makes one BM x BN tile at a time, k in steps
//       +---------+                              of 32; one warp fills the stages through the copy engine,
//       |   rhs   | 32   blocks 32 wide          the warp groups multiply. The grid is persistent.
//       +---------+
//  32   | tile    |      The copy engine rounds operands to TF32 (nearest even) on their way.
// +----+|         | BM
// |lhs ||         |      SPLIT: every f32 is the sum of two TF32 parts, x = high + low. `low` of lhs was
// +----++---------+      prepared in memory; rhs comes unrounded and is split here. Three products, low.high + high.low +
//                        high.high, are added to f32 registers after every stage, because the matrix
//                        unit's own additions round coarser than f32. SMALL_FIRST: a stage's small products come
//                        before the large ones, so that what they are added to is small, and what is cut off.
//
// With SLICES above 1 k is cut in as many slices, each slice of a tile is a tile of its own, and `out` holds the slices
// of a product one after another, for another kernel to add up.
//
// Defined by the build: BM STAGES WARP_GROUPS N_STEPS (1 or 2) SPLIT SMALL_FIRST UNROLL SLICES TILE_BAND, and the macros
// PRODUCT, PRODUCT_FIRST (replaces instead of adding) and PIN.

#define BK 32
#define ROW_BYTES 128
#define BN (64 * WARP_GROUPS * N_STEPS)
#define LHS_BYTES (BM * ROW_BYTES)
#define RHS_BLOCK_BYTES (BK * ROW_BYTES)
#define LHS_PARTS (1 + SPLIT)
#define STAGE_BYTES (LHS_PARTS * LHS_BYTES + BN * ROW_BYTES)
#define THREADS (128 * WARP_GROUPS + 128)
#define KK (BK / 8)

static inline uint round_tf32(uint x)
{
    uint r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(as_float(x)));
    return r;
}

static inline uint2 read_2(uint from)
{
    uint2 v;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
    return v;
}

static inline uint4 read_4(uint from)
{
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    return v;
}

// Which columns a lane's fragments stand for is free, so each lane reads neighbouring columns at once, and in
// an order in which the 32 lanes meet no bank twice: column group `first`, k = lane%4 (+4 for the second half).
#if N_STEPS == 1
#define LANE_BLOCK (part * 2 + (warp & 3) / 2)
#define LANE_CHUNK (2 * (warp & 1) + (g >> 2 & 1) + 4 * (g >> 1 & 1))
#define LANE_COLUMN (32 * LANE_BLOCK + 4 * LANE_CHUNK + 2 * (g & 1))
#define LANE_BYTE ((g & 1) * 8)
#else
#define LANE_BLOCK (part * 4 + (warp & 3))
#define LANE_CHUNK (g / 2 + 4 * (g & 1))
#define LANE_COLUMN (32 * LANE_BLOCK + 4 * LANE_CHUNK)
#define LANE_BYTE 0
#endif

// The stage's rhs fragments: x[kk][step][i], i as the instruction orders them (row g, g+8; then k + 4).
#define READ_FRAGMENTS(stage)                                                                                \
    _Pragma("unroll") for (uint kk = 0; kk < KK; kk++)                                                       \
        _Pragma("unroll") for (uint h = 0; h < 2; h++) {                                                     \
            uint from = (stage) + (h ? second : first) + kk * 8 * ROW_BYTES;                                 \
            if (N_STEPS == 1) {                                                                              \
                uint2 v = read_2(from);                                                                      \
                x[kk][0][2 * h] = v.x; x[kk][0][2 * h + 1] = v.y;                                            \
            } else {                                                                                         \
                uint4 v = read_4(from);                                                                      \
                x[kk][0][2 * h] = v.x; x[kk][0][2 * h + 1] = v.y;                                            \
                x[kk][N_STEPS - 1][2 * h] = v.z; x[kk][N_STEPS - 1][2 * h + 1] = v.w;                        \
            }                                                                                                \
        }

static inline void store_row(__global float *row, uint col, uint n, uint wide, const float *v, uint count)
{
    if (wide && col + count <= n) {
        if (count == 2) *(__global float2 *)(row + col) = (float2)(v[0], v[1]);
        else *(__global float4 *)(row + col) = (float4)(v[0], v[1], v[2], v[3]);
        return;
    }
    for (uint e = 0; e < count; e++)
        if (col + e < n) row[col + e] = v[e];
}

#define LOCATE_TILE(index)                                                                                   \
    uint slice = (index) / (total / SLICES), item = (index) % (total / SLICES);                              \
    uint first_step = slice * slice_steps, last_step = min(steps, first_step + slice_steps);                 \
    uint batch = item / (tiles_m * tiles_n);                                                                 \
    uint2 tile = tile_of(item % (tiles_m * tiles_n), tiles_m, tiles_n, TILE_BAND);                           \
    uint m0 = tile.x * BM, n0 = tile.y * BN;                                                                 \
    uint outer = batch / inner_batches, inner = batch % inner_batches

// `lhs`, `low` and `rhs` are tensor maps; their batch factors are 1, or 0 for an operand shared along that axis.
__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void matmul(__global const uchar *lhs, __global const uchar *low, uint lhs_outer, uint lhs_inner,
            __global const uchar *rhs, uint rhs_outer, uint rhs_inner,
            __global float *out, long out_offset, long out_row, long out_outer, long out_inner,
            uint m, uint n, uint k, uint tiles_m, uint tiles_n, uint batches, uint inner_batches, uint wide_stores)
{
    __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
    __local ulong barriers[2 * STAGES];
    uint base = shared_address(stages), full = shared_address(barriers), empty = full + 8 * STAGES;
    uint thread = get_local_id(0), warp = thread / 32, lane = thread % 32;
    // Stages past the end of k arrive as zeros.
    uint steps = (k + BK * UNROLL - 1) / (BK * UNROLL) * UNROLL;
    uint slice_steps = (steps / UNROLL + SLICES - 1) / SLICES * UNROLL;
    uint total = tiles_m * tiles_n * batches * SLICES, slot = 0, phase = 0;
    out += out_offset;

    if (thread == 0) {
        for (uint i = 0; i < STAGES; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 4 * WARP_GROUPS);
        }
        barrier_init_done();
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    if (warp >= 4 * WARP_GROUPS) {
        REGISTERS_GIVE_BACK(40);
        if (thread == 128 * WARP_GROUPS)
            for (uint index = get_group_id(0); index < total; index += get_num_groups(0)) {
                LOCATE_TILE(index);
                uint lz = inner * lhs_inner, lw = outer * lhs_outer, rz = inner * rhs_inner, rw = outer * rhs_outer;
                for (uint step = first_step; step < last_step; step++) {
                    barrier_wait(empty + 8 * slot, phase ^ 1);
                    uint stage = base + slot * STAGE_BYTES, bar = full + 8 * slot;
                    barrier_expect_bytes(bar, STAGE_BYTES);
                    copy_box(stage, lhs, step * BK, m0, lz, lw, bar);
                    if (SPLIT) copy_box(stage + LHS_BYTES, low, step * BK, m0, lz, lw, bar);
                    #pragma unroll
                    for (uint i = 0; i < BN / 32; i++)
                        copy_box(stage + LHS_PARTS * LHS_BYTES + i * RHS_BLOCK_BYTES, rhs, n0 + 32 * i, step * BK, rz, rw, bar);
                    if (++slot == STAGES) { slot = 0; phase ^= 1; }
                }
            }
    } else {
        REGISTERS_TAKE(232);
        uint part = warp / 4, g = lane / 4, t = lane % 4;
        uint first = LHS_PARTS * LHS_BYTES + LANE_BLOCK * RHS_BLOCK_BYTES + t * ROW_BYTES + ((LANE_CHUNK ^ t) << 4) + LANE_BYTE;
        uint second = (first ^ 64) + 4 * ROW_BYTES;
        for (uint index = get_group_id(0); index < total; index += get_num_groups(0)) {
            LOCATE_TILE(index);
            float acc[N_STEPS][BM / 2];
#if SPLIT
            float sum[N_STEPS][BM / 2];
#else
#define sum acc
#endif
            #pragma unroll
            for (uint i = 0; i < N_STEPS; i++)
                #pragma unroll
                for (uint c = 0; c < BM / 2; c++) { acc[i][c] = 0.0f; sum[i][c] = 0.0f; }
            uint previous = 0;
            for (uint step = first_step; step < last_step; step += UNROLL) {
                #pragma unroll
                for (uint u = 0; u < UNROLL; u++) {
                    barrier_wait(full + 8 * slot, phase);
                    uint stage = base + slot * STAGE_BYTES;
                    uint x[KK][N_STEPS][4];
                    READ_FRAGMENTS(stage)
                    ulong high_d = tile_descriptor(stage, 16, 1024);
#if SPLIT
                    ulong low_d = high_d + (LHS_BYTES >> 4);
                    uint low_x[KK][N_STEPS][4];
                    #pragma unroll
                    for (uint kk = 0; kk < KK; kk++)
                        #pragma unroll
                        for (uint i = 0; i < N_STEPS; i++)
                            #pragma unroll
                            for (uint e = 0; e < 4; e++) {
                                uint high = round_tf32(x[kk][i][e]);
                                low_x[kk][i][e] = round_tf32(as_uint(as_float(x[kk][i][e]) - as_float(high)));
                                x[kk][i][e] = high;
                            }
#endif
                    products_begin();
                    #pragma unroll
                    for (uint kk = 0; kk < KK; kk++)
                        #pragma unroll
                        for (uint i = 0; i < N_STEPS; i++) {
#if SPLIT
                            if (kk == 0) PRODUCT_FIRST(acc[i], low_x[kk][i], high_d + (kk * 32 >> 4));
                            else PRODUCT(acc[i], low_x[kk][i], high_d + (kk * 32 >> 4));
                            PRODUCT(acc[i], x[kk][i], low_d + (kk * 32 >> 4));
#endif
                            if (!SMALL_FIRST) PRODUCT(acc[i], x[kk][i], high_d + (kk * 32 >> 4));
                        }
                    if (SMALL_FIRST)
                        #pragma unroll
                        for (uint kk = 0; kk < KK; kk++)
                            #pragma unroll
                            for (uint i = 0; i < N_STEPS; i++) PRODUCT(acc[i], x[kk][i], high_d + (kk * 32 >> 4));
                    products_commit();
#if UNROLL == 1
                    PRODUCTS_WAIT(0);
                    if (lane == 0) barrier_arrive(empty + 8 * slot);
#else
                    PRODUCTS_WAIT(1);
                    if (step + u > first_step && lane == 0) barrier_arrive(empty + 8 * previous);
                    previous = slot;
#endif
#if SPLIT
                    #pragma unroll
                    for (uint i = 0; i < N_STEPS; i++) {
                        PIN(acc[i]);
                        #pragma unroll
                        for (uint c = 0; c < BM / 2; c++) sum[i][c] += acc[i][c];
                    }
#endif
                    if (++slot == STAGES) { slot = 0; phase ^= 1; }
                }
            }
#if UNROLL > 1
            PRODUCTS_WAIT(0);
            if (lane == 0) barrier_arrive(empty + 8 * previous);
#endif
            #pragma unroll
            for (uint i = 0; i < N_STEPS; i++) PIN(acc[i]);

            __global float *to = out + outer * out_outer + inner * out_inner + (long)slice * m * n;
            uint col = n0 + LANE_COLUMN;
            #pragma unroll
            for (uint j = 0; j < BM / 8; j++)
                #pragma unroll
                for (uint e = 0; e < 2; e++) {
                    uint row = m0 + 8 * j + 2 * t + e;
                    float v[4] = {sum[0][4 * j + e], sum[0][4 * j + 2 + e], sum[N_STEPS - 1][4 * j + e], sum[N_STEPS - 1][4 * j + 2 + e]};
                    if (row < m) store_row(to + row * out_row, col, n, wide_stores, v, 2 * N_STEPS);
                }
        }
    }
}
