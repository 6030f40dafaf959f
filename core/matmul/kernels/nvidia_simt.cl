// Plain f32 multiply-adds fed by the bulk copy engine: out = lhs . rhs, lhs contiguous along k, rhs along n.
//
//            BN                A work-group makes one BM x BN tile, k in steps of 32, out of STAGES stages in
//       +---------+            shared memory. Work-item 0 issues the copies AHEAD stages before their use.
//       |   rhs   | 32         Each work-item owns TM x TN results: rows ty + i * (BM / TM), columns in
//       +---------+            groups of 4 at 4 * (tx + j * (BN / TN)), so that a warp reads both operands
//  32   | tile    |            from shared memory as 16-byte pieces without bank conflicts: of lhs four
// +----+|         | BM         k's of one row, of rhs four columns of one k.
// |lhs ||         |
// +----++---------+            Every result is one chain of fused multiply-adds in the order of k.
//
// Defined by the build: BM BN TM TN STAGES AHEAD TILE_BAND.

#define BK 32
#define ROW_BYTES 128
#define COLS_X (BN / TN)
#define ROWS_Y (BM / TM)
#define THREADS (COLS_X * ROWS_Y)
#define WARPS_X (COLS_X / 8)
#define LHS_BYTES (BM * ROW_BYTES)
#define STAGE_BYTES (LHS_BYTES + BK * BN * 4)

#define FILL(step, slot)                                                                                     \
    do {                                                                                                     \
        uint stage_ = base + (slot) * STAGE_BYTES, bar_ = full + 8 * (slot);                                 \
        barrier_expect_bytes(bar_, STAGE_BYTES);                                                             \
        copy_box(stage_, lhs, (step) * BK, m0, inner * lhs_inner, outer * lhs_outer, bar_);                  \
        copy_box(stage_ + LHS_BYTES, rhs, n0, (step) * BK, inner * rhs_inner, outer * rhs_outer, bar_);      \
    } while (0)

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

// `lhs` and `rhs` are tensor maps; their batch factors are 1, or 0 for an operand shared along that axis.
__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void matmul(__global const uchar *lhs, uint lhs_outer, uint lhs_inner,
            __global const uchar *rhs, uint rhs_outer, uint rhs_inner,
            __global float *out, long out_offset, long out_row, long out_outer, long out_inner,
            uint m, uint n, uint k, uint tiles_m, uint tiles_n, uint inner_batches, uint wide_stores)
{
    __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
    __local ulong barriers[2 * STAGES];
    uint base = shared_address(stages), full = shared_address(barriers), empty = full + 8 * STAGES;
    uint thread = get_local_id(0), warp = thread / 32, lane = thread % 32;
    uint tx = lane % 8 + 8 * (warp % WARPS_X), ty = lane / 8 + 4 * (warp / WARPS_X);
    uint batch = get_group_id(0) / (tiles_m * tiles_n);
    uint2 tile = tile_of(get_group_id(0) % (tiles_m * tiles_n), tiles_m, tiles_n, TILE_BAND);
    uint m0 = tile.x * BM, n0 = tile.y * BN, outer = batch / inner_batches, inner = batch % inner_batches;
    uint steps = (k + BK - 1) / BK;

    if (thread == 0) {
        for (uint i = 0; i < STAGES; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, THREADS / 32);
        }
        barrier_init_done();
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (thread == 0)
        for (uint i = 0; i < AHEAD && i < steps; i++) FILL(i, i);

    float acc[TM][TN];
    #pragma unroll
    for (uint i = 0; i < TM; i++)
        #pragma unroll
        for (uint j = 0; j < TN; j++) acc[i][j] = 0.0f;

    // The slot to refill runs AHEAD of the slot in use; its first turn round the ring needs no waiting.
    uint slot = 0, phase = 0, refill = AHEAD % STAGES, refill_phase = AHEAD == STAGES ? 0 : 1;
    for (uint step = 0; step < steps; step++) {
        if (thread == 0 && step + AHEAD < steps) {
            barrier_wait(empty + 8 * refill, refill_phase);
            FILL(step + AHEAD, refill);
        }
        converge_warp();
        if (++refill == STAGES) { refill = 0; refill_phase ^= 1; }
        barrier_wait(full + 8 * slot, phase);
        uint stage = base + slot * STAGE_BYTES;
        // Rows of one work-item differ by a multiple of 8, so their pieces are swizzled alike.
        uint lhs_row = stage + ty * ROW_BYTES + ((ty & 7) << 4);
        __local const float4 *b = (__local const float4 *)(ulong)(stage + LHS_BYTES + tx * 16);
        #pragma unroll
        for (uint k4 = 0; k4 < BK / 4; k4++) {
            __local const float4 *a = (__local const float4 *)(ulong)(lhs_row ^ (k4 << 4));
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
                if (k4 == BK / 4 - 1 && kk == 3) {
                    converge_warp();
                    if (lane == 0) barrier_arrive(empty + 8 * slot);
                }
                #pragma unroll
                for (uint i = 0; i < TM; i++)
                    #pragma unroll
                    for (uint j = 0; j < TN; j++) acc[i][j] = fma(left[i][kk], right[j], acc[i][j]);
            }
        }
        if (++slot == STAGES) { slot = 0; phase ^= 1; }
    }

    out += out_offset + outer * out_outer + inner * out_inner;
    #pragma unroll
    for (uint i = 0; i < TM; i++) {
        uint row = m0 + ty + i * ROWS_Y;
        #pragma unroll
        for (uint j = 0; j < TN / 4; j++)
            if (row < m) store_4(out + row * out_row, n0 + 4 * (tx + j * COLS_X), n, wide_stores, &acc[i][4 * j]);
    }
}
