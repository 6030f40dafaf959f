// Plain f32 multiply-adds: out = lhs . rhs, lhs contiguous along k, rhs along n.
//
//            BN                A work-group makes one BM x BN tile, k in steps of 32, out of STAGES stages in
//       +---------+            shared memory. Each work-item owns TM x TN results: rows ty + i * (BM / TM),
//       |   rhs   | 32         columns in groups of 4 at 4 * (tx + j * (BN / TN)), so that a warp reads both
//       +---------+            operands from shared memory as 16-byte pieces without bank conflicts: of lhs
//  32   | tile    |            four k's of one row, of rhs four columns of one k.
// +----+|         | BM
// |lhs ||         |            K_GROUPS 1: every result is one chain of fused multiply-adds in the order of k.
// +----++---------+            K_GROUPS 2: two sets of work-items take half of each stage's k, and add up last;
//                              more work-items then keep a small tile busy.
//
// BULK 1: work-item 0 brings stages in through the copy engine, AHEAD stages before their use.
// BULK 0: all work-items copy single elements asynchronously, for operands of any alignment.
//
// With SLICES above 1 k is cut in as many slices, each slice of a tile is made by a work-group of its own, and
// `out` holds the slices of a product one after another, for another kernel to add up.
//
// Defined by the build: BM BN TM TN K_GROUPS STAGES AHEAD BULK SLICES TILE_BAND.

#define BK 32
#define ROW_BYTES 128
#define COLS_X (BN / TN)
#define ROWS_Y (BM / TM)
#define OWNERS (COLS_X * ROWS_Y)
#define THREADS (OWNERS * K_GROUPS)
#define WARPS_X (COLS_X / 8)
#define LHS_BYTES (BM * ROW_BYTES)
#define STAGE_BYTES (LHS_BYTES + BK * BN * 4)
#define K4_EACH (BK / 4 / K_GROUPS)

#if BULK
#define FILL(step, slot)                                                                                     \
    do {                                                                                                     \
        uint stage_ = base + (slot) * STAGE_BYTES, bar_ = full + 8 * (slot);                                 \
        barrier_expect_bytes(bar_, STAGE_BYTES);                                                             \
        copy_box(stage_, (__global const uchar *)lhs, (step) * BK, m0, inner * (uint)lhs_inner, outer * (uint)lhs_outer, bar_); \
        copy_box(stage_ + LHS_BYTES, (__global const uchar *)rhs, n0, (step) * BK, inner * (uint)rhs_inner, outer * (uint)rhs_outer, bar_); \
    } while (0)
#else
// A warp copies 32 k's of a row of lhs at once, and neighbouring columns of rhs.
static inline void fill_stage(uint stage, __global const float *lhs, long lhs_row, int rows_left, int k_left,
                              __global const float *rhs, long rhs_row, int cols_left, uint thread)
{
    uint lane = thread % 32, warp = thread / 32;
    #pragma unroll
    for (uint i = 0; i < BM * 32 / THREADS; i++) {
        uint r = warp + i * (THREADS / 32);
        copy_4(stage + r * ROW_BYTES + (((lane / 4) ^ (r & 7)) << 4) + lane % 4 * 4, lhs + r * lhs_row + lane,
               (int)r < rows_left && (int)lane < k_left);
    }
    #pragma unroll
    for (uint i = 0; i < BN * BK / THREADS; i++) {
        uint index = thread + i * THREADS, c = index % BN, r = index / BN;
        copy_4(stage + LHS_BYTES + 4 * index, rhs + r * rhs_row + c, (int)r < k_left && (int)c < cols_left);
    }
}
#define FILL(step, slot)                                                                                     \
    fill_stage(base + (slot) * STAGE_BYTES, lhs + (step) * BK, lhs_row, (int)(m - m0), (int)(k - (step) * BK), \
               rhs + (step) * BK * rhs_row, rhs_row, (int)(n - n0), thread)
#endif

static inline void store_4(__global float *row, uint col, uint n, uint wide, const float *v)
{
    if (wide && col + 4 <= n) {
        *(__global float4 *)(row + col) = (float4)(v[0], v[1], v[2], v[3]);
        return;
    }
    #pragma unroll
    for (uint e = 0; e < 4; e++)
        if (col + e < n) row[col + e] = v[e];
}

// With BULK `lhs` and `rhs` are tensor maps, their offsets and rows unused and their batch strides 1, or 0 for an
// operand shared along that axis.
__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void matmul(__global const float *lhs, long lhs_offset, long lhs_row, long lhs_outer, long lhs_inner,
            __global const float *rhs, long rhs_offset, long rhs_row, long rhs_outer, long rhs_inner,
            __global float *out, long out_offset, long out_row, long out_outer, long out_inner,
            uint m, uint n, uint k, uint tiles_m, uint tiles_n, uint inner_batches, uint wide_stores)
{
    __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
    uint base = shared_address(stages);
    uint thread = get_local_id(0), owner = thread % OWNERS, lane = thread % 32, k_group = thread / OWNERS;
    uint tx = lane % 8 + 8 * (owner / 32 % WARPS_X), ty = lane / 8 + 4 * (owner / 32 / WARPS_X);
    uint items = get_num_groups(0) / SLICES, slice = get_group_id(0) / items, item = get_group_id(0) % items;
    uint batch = item / (tiles_m * tiles_n);
    uint2 tile = tile_of(item % (tiles_m * tiles_n), tiles_m, tiles_n, TILE_BAND);
    uint m0 = tile.x * BM, n0 = tile.y * BN, outer = batch / inner_batches, inner = batch % inner_batches;
    uint all_steps = (k + BK - 1) / BK, each = (all_steps + SLICES - 1) / SLICES, first_step = slice * each;
    uint steps = min(all_steps, first_step + each) - first_step;

#if BULK
    __local ulong barriers[2 * STAGES];
    uint full = shared_address(barriers), empty = full + 8 * STAGES;
    if (thread == 0) {
        for (uint i = 0; i < STAGES; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, THREADS / 32);
        }
        barrier_init_done();
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (thread == 0)
        for (uint i = 0; i < AHEAD && i < steps; i++) FILL(first_step + i, i);
    // The slot to refill runs AHEAD of the slot in use; its first turn round the ring needs no waiting.
    uint refill = AHEAD % STAGES, refill_phase = AHEAD == STAGES ? 0 : 1;
#else
    lhs += lhs_offset + outer * lhs_outer + inner * lhs_inner + m0 * lhs_row;
    rhs += rhs_offset + outer * rhs_outer + inner * rhs_inner + n0;
    for (uint i = 0; i < STAGES - 1; i++) {
        if (i < steps) FILL(first_step + i, i);
        copies_commit();
    }
    uint refill = STAGES - 1;
#endif

    float acc[TM][TN];
    #pragma unroll
    for (uint i = 0; i < TM; i++)
        #pragma unroll
        for (uint j = 0; j < TN; j++) acc[i][j] = 0.0f;

    uint slot = 0, phase = 0;
    for (uint step = 0; step < steps; step++) {
#if BULK
        if (thread == 0 && step + AHEAD < steps) {
            barrier_wait(empty + 8 * refill, refill_phase);
            FILL(first_step + step + AHEAD, refill);
        }
        converge_warp();
        if (++refill == STAGES) { refill = 0; refill_phase ^= 1; }
        barrier_wait(full + 8 * slot, phase);
#else
        COPIES_WAIT(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + STAGES - 1 < steps) FILL(first_step + step + STAGES - 1, refill);
        copies_commit();
        if (++refill == STAGES) refill = 0;
#endif
        uint stage = base + slot * STAGE_BYTES;
        // Rows of one work-item differ by a multiple of 8, so their pieces are swizzled alike.
        uint lhs_at = (stage + ty * ROW_BYTES + ((ty & 7) << 4)) ^ (k_group * K4_EACH << 4);
        __local const float4 *b = (__local const float4 *)(ulong)(stage + LHS_BYTES + k_group * K4_EACH * 16 * BN + tx * 16);
        #pragma unroll
        for (uint k4 = 0; k4 < K4_EACH; k4++) {
            __local const float4 *a = (__local const float4 *)(ulong)(lhs_at ^ (k4 << 4));
            float left[TM][4];
            #pragma unroll
            for (uint i = 0; i < TM; i++) {
                float4 v = a[i * ROWS_Y * (ROW_BYTES / 16)];
                left[i][0] = v.x; left[i][1] = v.y; left[i][2] = v.z; left[i][3] = v.w;
            }
            #pragma unroll
            for (uint kk = 0; kk < 4; kk++) {
                float right[TN];
                #pragma unroll
                for (uint j = 0; j < TN / 4; j++) {
                    float4 v = b[((4 * k4 + kk) * BN + 4 * j * COLS_X) / 4];
                    right[4 * j] = v.x; right[4 * j + 1] = v.y; right[4 * j + 2] = v.z; right[4 * j + 3] = v.w;
                }
#if BULK
                if (k4 == K4_EACH - 1 && kk == 3) {
                    converge_warp();
                    if (lane == 0) barrier_arrive(empty + 8 * slot);
                }
#endif
                #pragma unroll
                for (uint i = 0; i < TM; i++)
                    #pragma unroll
                    for (uint j = 0; j < TN; j++) acc[i][j] = fma(left[i][kk], right[j], acc[i][j]);
            }
        }
        if (++slot == STAGES) { slot = 0; phase ^= 1; }
    }

    out += out_offset + outer * out_outer + inner * out_inner + (long)slice * m * n;
#if K_GROUPS == 2
    // Each set keeps one half of the rows and gives the other half away.
    __local float *shared = (__local float *)stages;
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (uint i = 0; i < TM / 2; i++)
        #pragma unroll
        for (uint j = 0; j < TN; j++)
            shared[((k_group * TM / 2 + i) * TN + j) * OWNERS + owner] = k_group ? acc[i][j] : acc[i + TM / 2][j];
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (uint i = 0; i < TM / 2; i++) {
        float v[TN];
        #pragma unroll
        for (uint j = 0; j < TN; j++)
            v[j] = (k_group ? acc[i + TM / 2][j] : acc[i][j]) + shared[(((1 - k_group) * TM / 2 + i) * TN + j) * OWNERS + owner];
        uint row = m0 + ty + (k_group * TM / 2 + i) * ROWS_Y;
        #pragma unroll
        for (uint j = 0; j < TN / 4; j++)
            if (row < m) store_4(out + row * out_row, n0 + 4 * (tx + j * COLS_X), n, wide_stores, &v[4 * j]);
    }
#else
    #pragma unroll
    for (uint i = 0; i < TM; i++) {
        uint row = m0 + ty + i * ROWS_Y;
        #pragma unroll
        for (uint j = 0; j < TN / 4; j++)
            if (row < m) store_4(out + row * out_row, n0 + 4 * (tx + j * COLS_X), n, wide_stores, &acc[i][4 * j]);
    }
#endif
}
