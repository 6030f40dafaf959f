// Shared by the 16-bit matrix kernels: how tiles of both operands come into shared memory, and how results
// are rounded and stored.
//
// A stage holds 64 of k of both operands in rows of 128 bytes, 16-byte pieces swizzled as the copy engine
// does it (piece c of row r lies at c ^ (r & 7)):
//     operand contiguous along k:        one block, a row for each m (or n);
//     operand contiguous along m (or n): blocks of 64 columns (8 KiB), a row for each k.
// Both are read in place: no operand is transposed on its way.
//
// FEED says who fills the stages:
//   FEED_BULK_PRODUCER   a warp of its own, through the copy engine; the grid is persistent
//   FEED_COPY_PRODUCER   four warps of their own, with asynchronous 16-byte copies; persistent
//   FEED_BULK_INLINE     one of the multiplying work-items, through the copy engine
//   FEED_COPY_INLINE     all multiplying work-items in turn, with asynchronous 16-byte copies
//
// With SLICES above 1 (only with a producer) k is cut in as many slices, and each slice of a tile is a tile of its own.
//
// With EARLY_K (only with the copy engine's producer and one slice) a product of the batch starts as far before k = 0 as
// makes lhs's boxes start at multiples of 128 bytes. What lies outside an operand comes as zeros.
//
// Needs BM BN STAGES SLICES FEED TILE_BAND EARLY_K LHS_K_CONTIGUOUS RHS_K_CONTIGUOUS PACK_PAIR and WORKERS, the number
// of multiplying work-items.

#define BK 64
#define ROW_BYTES 128
#define BLOCK_BYTES (64 * ROW_BYTES)
#define LHS_BYTES (BM * ROW_BYTES)
#define RHS_BLOCKS ((BN + 63) / 64)
#define RHS_BYTES (RHS_BLOCKS * BLOCK_BYTES)
#define STAGE_BYTES (LHS_BYTES + RHS_BYTES)
// What the copy engine brings in: whole blocks of rhs, or BN rows of it.
#define FILLED_BYTES (LHS_BYTES + (RHS_K_CONTIGUOUS ? BN * ROW_BYTES : RHS_BYTES))

#define HAS_PRODUCER (FEED == FEED_BULK_PRODUCER || FEED == FEED_COPY_PRODUCER)
#define IS_BULK (FEED == FEED_BULK_PRODUCER || FEED == FEED_BULK_INLINE)
#if FEED == FEED_BULK_PRODUCER
#define PRODUCERS 32
#elif FEED == FEED_COPY_PRODUCER
#define PRODUCERS 128
#else
#define PRODUCERS 0
#endif
#define THREADS (WORKERS + PRODUCERS)

// What one launch needs to know; strides in elements. With the copy engine `lhs` and `rhs` are tensor
// maps and their batch strides are 1, or 0 for an operand that all products of that axis share; EARLY_K then finds in
// lhs_offset where lhs starts, and in lhs_row how far the products of the inner axis are apart.
typedef struct {
    uint m, n, k, tiles_m, tiles_n, inner_batches;
    __global const uchar *lhs, *rhs;
    long lhs_offset, lhs_row, lhs_outer, lhs_inner, rhs_row, rhs_outer, rhs_inner;
} Work;

#if IS_BULK

static inline void fill_stage(Work w, uint stage, uint bar, uint m0, uint n0, uint k0, uint batch, uint thread)
{
    uint outer = batch / w.inner_batches, inner = batch % w.inner_batches;
    uint lz = inner * (uint)w.lhs_inner, lw = outer * (uint)w.lhs_outer;
    uint rz = inner * (uint)w.rhs_inner, rw = outer * (uint)w.rhs_outer;
    barrier_expect_bytes(bar, FILLED_BYTES);
#if LHS_K_CONTIGUOUS
    copy_box(stage, w.lhs, k0, m0, lz, lw, bar);
#else
    #pragma unroll
    for (uint i = 0; i < BM / 64; i++) copy_box(stage + i * BLOCK_BYTES, w.lhs, m0 + 64 * i, k0, lz, lw, bar);
#endif
#if RHS_K_CONTIGUOUS
    copy_box(stage + LHS_BYTES, w.rhs, k0, n0, rz, rw, bar);
#else
    #pragma unroll
    for (uint i = 0; i < RHS_BLOCKS; i++)
        copy_box(stage + LHS_BYTES + i * BLOCK_BYTES, w.rhs, n0 + 64 * i, k0, rz, rw, bar);
#endif
}

#else

// This work-item's 16-byte pieces of `count` lines: every FEEDERS/8-th line from its first. `from` is its first
// piece, `left` the number of lines the operand still has from there, `inside` the bytes of a piece inside it.
#define FEEDERS (PRODUCERS ? PRODUCERS : THREADS)
static inline void copy_lines(uint to, __global const uchar *from, long pitch, int left, int inside, uint count)
{
    uint valid = (uint)clamp(inside, 0, 16);
    #pragma unroll
    for (uint i = 0; i < count * 8 / FEEDERS; i++)
        copy_16(to + i * (FEEDERS / 8) * ROW_BYTES, from + i * (FEEDERS / 8) * 2 * pitch,
                (int)(i * (FEEDERS / 8)) < left ? valid : 0);
}

static inline void fill_stage(Work w, uint stage, uint bar, uint m0, uint n0, uint k0, uint batch, uint thread)
{
    uint line = thread / 8, piece = thread % 8;
    uint to = stage + line * ROW_BYTES + ((piece ^ (line & 7)) << 4);
    long outer = batch / w.inner_batches, inner = batch % w.inner_batches;
    __global const uchar *lhs = w.lhs + 2 * (outer * w.lhs_outer + inner * w.lhs_inner + 8 * piece);
    __global const uchar *rhs = w.rhs + 2 * (outer * w.rhs_outer + inner * w.rhs_inner + 8 * piece);
    int k_inside = 2 * (int)(w.k - k0 - 8 * piece), k_left = (int)(w.k - k0 - line);
#if LHS_K_CONTIGUOUS
    copy_lines(to, lhs + 2 * ((m0 + line) * w.lhs_row + k0), w.lhs_row, (int)(w.m - m0 - line), k_inside, BM);
#else
    lhs += 2 * ((k0 + line) * w.lhs_row + m0);
    #pragma unroll
    for (uint i = 0; i < BM / 64; i++)
        copy_lines(to + i * BLOCK_BYTES, lhs + 128 * i, w.lhs_row, k_left, 2 * (int)(w.m - m0 - 64 * i - 8 * piece), BK);
#endif
    to += LHS_BYTES;
#if RHS_K_CONTIGUOUS
    copy_lines(to, rhs + 2 * ((n0 + line) * w.rhs_row + k0), w.rhs_row, (int)(w.n - n0 - line), k_inside, BN);
#else
    rhs += 2 * ((k0 + line) * w.rhs_row + n0);
    #pragma unroll
    for (uint i = 0; i < RHS_BLOCKS; i++)
        copy_lines(to + i * BLOCK_BYTES, rhs + 128 * i, w.rhs_row, k_left, 2 * (int)(w.n - n0 - 64 * i - 8 * piece), BK);
#endif
}

#endif

static inline uint early_k(Work work, uint inner)
{
    return EARLY_K ? ((uint)work.lhs_offset + inner * (uint)work.lhs_row) % (ROW_BYTES / 2) : 0;
}

// Where a tile begins, moved back into the operand where it would reach past its end: the copy engine is slow with lines
// that lie in it only in part. Results that two tiles then make are the same.
static inline uint inside(uint start, uint length, uint end)
{
    return end >= length && end % 8 == 0 ? min(start, end - length) : start;
}

// Slices come one after another, so that tiles in flight together share operands.
#define LOCATE_TILE(index)                                                                                   \
    uint slice = SLICES == 1 ? 0 : (index) / (total / SLICES), item = SLICES == 1 ? (index) : (index) % (total / SLICES); \
    uint first_step = slice * ((steps + SLICES - 1) / SLICES);                                               \
    uint last_step = min(steps, first_step + (steps + SLICES - 1) / SLICES);                                 \
    LOCATE_ITEM(item);                                                                                       \
    uint early = early_k(work, batch % work.inner_batches);                                                  \
    if (EARLY_K) last_step = (work.k + early + BK - 1) / BK
#define LOCATE_ITEM(item)                                                                                    \
    uint batch = (item) / (tiles_m * tiles_n);                                                               \
    uint2 tile = tile_of((item) % (tiles_m * tiles_n), tiles_m, tiles_n, TILE_BAND);                         \
    uint m0 = LHS_K_CONTIGUOUS ? tile.x * BM : inside(tile.x * BM, BM, m);                                    \
    uint n0 = RHS_K_CONTIGUOUS ? tile.y * BN : inside(tile.y * BN, BN, n)

// The producer's whole life, for every tile of this work-group. FEED_COPY_PRODUCER hands stages over LAG later
// than their copies are issued: the copies are then complete.
static inline void produce(Work work, uint base, uint full, uint empty, uint total, uint steps, uint producer)
{
    uint m = work.m, n = work.n, tiles_m = work.tiles_m, tiles_n = work.tiles_n, slot = 0, phase = 0;
#if FEED == FEED_BULK_PRODUCER
    if (producer > 0) return;
    for (uint index = get_group_id(0); index < total; index += get_num_groups(0)) {
        LOCATE_TILE(index);
        for (uint step = first_step; step < last_step; step++) {
            barrier_wait(empty + 8 * slot, phase ^ 1);
            fill_stage(work, base + slot * STAGE_BYTES, full + 8 * slot, m0, n0, step * BK - early, batch, 0);
            if (++slot == STAGES) { slot = 0; phase ^= 1; }
        }
    }
#elif FEED == FEED_COPY_PRODUCER
    uint issued = 0, handed = 0;
    for (uint index = get_group_id(0); index < total; index += get_num_groups(0)) {
        LOCATE_TILE(index);
        for (uint step = first_step; step < last_step; step++) {
            barrier_wait(empty + 8 * slot, phase ^ 1);
            fill_stage(work, base + slot * STAGE_BYTES, 0, m0, n0, step * BK, batch, producer);
            copies_commit();
            if (issued >= LAG) {
                COPIES_WAIT(LAG);
                publish_to_async();
                barrier_arrive(full + 8 * handed);
                if (++handed == STAGES) handed = 0;
            }
            issued++;
            if (++slot == STAGES) { slot = 0; phase ^= 1; }
        }
    }
    COPIES_WAIT(0);
    publish_to_async();
    for (uint i = 0; i < min(issued, (uint)LAG); i++) {
        barrier_arrive(full + 8 * handed);
        if (++handed == STAGES) handed = 0;
    }
#endif
}

// With the copy engine's producer that warp makes the barriers and does not wait for the others: they meet it once,
// before their first stage. Otherwise work-item 0 makes them and all wait here.
#if FEED == FEED_BULK_PRODUCER
#define STARTER WORKERS
#define PRODUCER_STARTS() \
    do { converge_warp(); asm volatile("bar.arrive 1, %0;" : : "n"(THREADS) : "memory"); } while (0)
#define WORKERS_START() asm volatile("bar.sync 1, %0;" : : "n"(THREADS) : "memory")
#else
#define STARTER 0
#define PRODUCER_STARTS()
#define WORKERS_START()
#endif
static inline void prepare_barriers(Work w, uint full, uint empty)
{
#if IS_BULK
    if (get_local_id(0) == STARTER) {
        prefetch_map(w.lhs);
        prefetch_map(w.rhs);
    }
#endif
#if FEED != FEED_COPY_INLINE
    if (get_local_id(0) == STARTER) {
        for (uint i = 0; i < STAGES; i++) {
            barrier_init(full + 8 * i, FEED == FEED_COPY_PRODUCER ? PRODUCERS : 1);
            barrier_init(empty + 8 * i, WORKERS / 32);
        }
        barrier_init_done();
    }
#if FEED != FEED_BULK_PRODUCER
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
#endif
}

// Inline feeding: FILL issues a stage's copies, FILL_DONE closes the batch, FILL_WAIT waits for the oldest stage.
#if FEED == FEED_BULK_INLINE
#define FILL(step, slot) \
    if (thread == 0) fill_stage(work, base + (slot) * STAGE_BYTES, full + 8 * (slot), m0, n0, (step) * BK, batch, 0)
#define FILL_DONE() converge_warp()
#define FILL_WAIT(slot, phase) barrier_wait(full + 8 * (slot), phase)
#elif FEED == FEED_COPY_INLINE
#define FILL(step, slot) fill_stage(work, base + (slot) * STAGE_BYTES, 0, m0, n0, (step) * BK, batch, thread)
#define FILL_DONE() copies_commit()
#define FILL_WAIT(slot, phase) COPIES_WAIT(STAGES - 2)
#endif

// ---- results

static inline uint exchange(uint value, uint mask)
{
    uint other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(other) : "r"(value), "r"(mask));
    return other;
}

static inline uint pack_pair(float low, float high)
{
    uint pair;
    asm(TEXT(PACK_PAIR) " %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Four lanes of a quad hold, of 32 columns, the pairs 2*lane + 8*i; afterwards each holds 8 columns in a row.
static inline uint4 gather_columns(uint4 v, uint quad)
{
    uint x = exchange(quad & 1 ? v.x : v.y, 1), y = exchange(quad & 1 ? v.z : v.w, 1);
    if (quad & 1) { v.x = x; v.z = y; } else { v.y = x; v.w = y; }
    x = exchange(quad & 2 ? v.x : v.z, 2);
    y = exchange(quad & 2 ? v.y : v.w, 2);
    if (quad & 2) { v.x = x; v.y = y; } else { v.z = x; v.w = y; }
    return v;
}

static inline void store_columns(__global ushort *row, uint col, uint n, uint4 v)
{
    if (col + 8 <= n) {
        *(__global uint4 *)(row + col) = v;
        return;
    }
    uint pairs[4] = {v.x, v.y, v.z, v.w};
    #pragma unroll
    for (uint e = 0; e < 8; e++)
        if (col + e < n) row[col + e] = (ushort)(pairs[e / 2] >> (16 * (e % 2)));
}

static inline void store_pair(__global ushort *row, uint col, uint n, uint wide, uint pair)
{
    if (wide && col + 1 < n) {
        *(__global uint *)(row + col) = pair;
        return;
    }
    if (col < n) row[col] = (ushort)pair;
    if (col + 1 < n) row[col + 1] = (ushort)(pair >> 16);
}

// ---- the kernel's arguments. Strides and offsets in elements of the operand, offset and rows of a map unused.
#define MATMUL_ARGUMENTS \
    __global const uchar *lhs, long lhs_offset, long lhs_row, long lhs_outer, long lhs_inner, \
    __global const uchar *rhs, long rhs_offset, long rhs_row, long rhs_outer, long rhs_inner, \
    __global ushort *out, long out_offset, long out_row, long out_outer, long out_inner, \
    uint m, uint n, uint k, uint tiles_m, uint tiles_n, uint batches, uint inner_batches, uint wide_stores

#define MATMUL_SETUP()                                                                                       \
    __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));                               \
    __local ulong barriers[2 * STAGES];                                                                      \
    uint base = shared_address(stages), full = shared_address(barriers), empty = full + 8 * STAGES;          \
    uint thread = get_local_id(0), warp = thread / 32, lane = thread % 32;                                   \
    uint steps = (k + BK - 1) / BK, total = tiles_m * tiles_n * batches * SLICES;                                    \
    Work work = {m, n, k, tiles_m, tiles_n, inner_batches, lhs + LHS_OFFSET, rhs + RHS_OFFSET,               \
                 lhs_offset, lhs_row, lhs_outer, lhs_inner, rhs_row, rhs_outer, rhs_inner};                              \
    out += out_offset;                                                                                       \
    prepare_barriers(work, full, empty)
#define LHS_OFFSET (IS_BULK ? 0 : 2 * lhs_offset)
#define RHS_OFFSET (IS_BULK ? 0 : 2 * rhs_offset)
