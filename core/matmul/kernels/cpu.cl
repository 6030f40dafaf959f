/* Cache-blocked product for CPUs: one work-item a work-group, and a work-item is a whole block of the result.
 *
 *              k                     col_block columns            col_block
 *         +----+----+            +------+------+------+          +---------+
 *         | KC :    |         KC | NR   | NR   |      |          | MR x NR |  <- registers: MR rows of
 *    rows |....:....| MR  x      +------+------+------+   ->     |         |     NV vectors of VW elements
 *         |    :    |            |      |      |      |          |         |
 *         +----+----+            +------+------+------+          +---------+
 *
 *   for each KC of the summed axis
 *       copy col_block columns of rhs into panels of NR columns, k outermost   (level 2 cache; copy_rhs; unless
 *       they are there from the block before; with few rows, the first register tile does it on its way)
 *       for each MR rows of this block
 *           copy MR rows of lhs                                                (level 1 cache; COPIED)
 *           for each panel: MR x NR accumulators over KC, then added to the result
 *
 *   VW, NV, MR   the register tile: NR = NV * VW
 *   KC           largest depth of a block
 *   PANEL_ROWS   room for copies of rhs: so many rows of NR elements
 *   LHS_FROM     IN_PLACE: read lhs where it is (needs IN as accumulated); COPIED: as above; PACKED: pack_lhs
 *                has put the whole of it in tile order beforehand
 *   PARTS        sums between two KC blocks are kept in parts[b][m][n], because the result's type is too small
 *
 *   TURNS        1: there is a work-item a core, and each has a stretch of the blocks, in order, so that it copies
 *                rhs once for all blocks below one another; then it takes from what others have left, so that no
 *                core is waited for longer than a block lasts. 0: a work-item a block
 *
 * All numbers come in one argument by value, since runtimes spend time on every argument: col_block (a multiple
 * of NR) and row_block (a multiple of MR) are what a block of the result has, depth_block (at most KC) what is
 * taken of the summed axis at a time, `blocks` how many blocks there are in all. copy_rhs: whether to copy rhs;
 * else full panels are read where they are, which needs RHS_COL_1 and IN as accumulated. The summed axis is cut
 * in `slices` of `depth`; with more than one, slice s of product b writes its sums to parts[b * slices + s][m][n]
 * for reduce.cl. These are numbers and no options, so that copying or not, in slices or not, is one program:
 * compiling it takes up to a thousand times as long as running it. Copies are widened to the accumulator's type
 * and padded with zeros, so the inner loop has no edges.
 */
typedef struct {
    MATRIX_FIELDS(lhs)
    MATRIX_FIELDS(rhs)
    MATRIX_FIELDS(out)
    int m, n, k, inner_extent;
    int col_block, row_block, depth_block, blocks, copy_rhs, depth, slices;
} args_t;

#define IN_PLACE 0
#define COPIED 1
#define PACKED 2

#define NR (NV * VW)
#define LHS_PITCH ((KC + 31) / 16 * 16) /* not a power of two: rows would share their cache sets */

/* Copies are aligned to their vectors, and a plain store is one instruction where vstore may be several. */
#define STORE_LOCAL(v, p, i) *(__local acc_v *)((p) + (i)) = (v)

/* Up to so many rows, the copy of rhs is made by the first row tile as it multiplies: then waiting for memory
 * overlaps with arithmetic. With more rows it matters less than reading the rows of rhs from end to end. */
#define FUSED_ROWS 256

/* Has a line fetched: of the result while the sums for it are computed, of a panel ROWS_AHEAD before its row. */
#define WILL_WRITE(p)
#define WILL_READ(p)
#if ON_CPU && defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#undef WILL_WRITE
#undef WILL_READ
#define WILL_WRITE(p) __builtin_prefetch((const void *)(size_t)(p), 1, 3)
#define WILL_READ(p) __builtin_prefetch((const void *)(size_t)(p), 0, 3)
#endif
#endif
#define ROWS_AHEAD 16
#define LINE_ELEMS (64 / (int)sizeof(acc_t))

/* Whether rhs can be read where it is. */
#if defined(RHS_COL_1) && (IN == F32 || IN == F64)
#define COPIES copy_rhs
#else
#define COPIES 1
#endif

#ifdef RHS_COL_1
/* `count` full panels from column col on, elements k0 .. k0 + kc of the summed axis, to panel[p][NR] each: row
 * by row, since the rows of a large rhs lie on different pages. */
inline void copy_full_panels(__global const in_t *rhs, long rhs_row_arg, int k0, int kc, int col, int count,
                             __local acc_t *panels)
{
    __global const in_t *from = rhs + k0 * rhs_row + col;
    for (int p = 0; p < kc; p++) {
        for (int c = 0; c < count; c++)
#pragma unroll
            for (int j = 0; j < NV; j++)
                STORE_LOCAL(LOADV(from, c * NR + j * VW), panels, (c * kc + p) * NR + j * VW);
        from += rhs_row;
    }
}

/* What the first row tile read of a panel, kept for the others. */
#define COPY_Y(panel)                                                          \
    _Pragma("unroll") for (int j = 0; j < NV; j++)                             \
        STORE_LOCAL(y[j], panel, p * NR + j * VW)
#endif

/* One panel, in any order of rhs, past the last column filled with zeros. */
inline void copy_panel(__global const in_t *rhs, long rhs_row_arg, long rhs_col_arg, int k0, int kc, int col,
                       int n, __local acc_t *panel)
{
    int columns = min(NR, n - col);
    for (int p0 = 0; p0 < kc; p0 += 16) { /* few panel rows at a time: they stay in the level 1 cache */
        int p_end = min(kc, p0 + 16);
        for (int j = 0; j < columns; j++) {
            __global const in_t *from = rhs + k0 * rhs_row + (col + j) * rhs_col;
            for (int p = p0; p < p_end; p++)
                panel[p * NR + j] = LOAD(from, p * rhs_row);
        }
        for (int p = p0; p < p_end; p++)
            for (int j = columns; j < NR; j++)
                panel[p * NR + j] = 0;
    }
}

/* Where the register tile's rows of lhs come from. */
#if LHS_FROM == PACKED
#define LHS_AT(i, p) a[(p) * MR + (i)]
#elif LHS_FROM == IN_PLACE
#define LHS_AT(i, p) a[i][(p) * lhs_col]
#else
#define LHS_AT(i, p) tile[(i) * LHS_PITCH + (p)]

/* MR rows, clamped at the last one, elements k0 .. k0 + kc of the summed axis. */
inline void copy_rows(__global const in_t *lhs, long lhs_row_arg, long lhs_col_arg, int k0, int kc, int row,
                      int row_end, __local acc_t *tile)
{
    for (int i = 0; i < MR; i++) {
        __global const in_t *from = lhs + min(row + i, row_end - 1) * lhs_row + k0 * lhs_col;
        int p = 0;
#ifdef LHS_COL_1
        for (; p + VW <= kc; p += VW)
            STORE_LOCAL(LOADV(from, p), tile, i * LHS_PITCH + p);
#endif
        for (; p < kc; p++)
            tile[i * LHS_PITCH + p] = LOAD(from, p * lhs_col);
    }
}
#endif

#if LHS_FROM == PACKED
/* The whole lhs once, for every work-item of cpu_gemm: tiles of MR rows as packed[b][tile][p][MR], clamped at
 * the last row. A work-item takes PACK_TILES tiles, to use whole cache lines of a transposed lhs, and
 * PACK_DEPTH elements of the summed axis. */
__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void pack_lhs(BUFFER_ARGS, const args_t args, __global acc_t *restrict packed)
{
    PROBLEM_FROM(args)
    int p_begin = get_global_id(0) * PACK_DEPTH, p_end = min(k, p_begin + PACK_DEPTH);
    int tiles = (m + MR - 1) / MR;
    int tile_begin = get_global_id(1) * PACK_TILES, tile_end = min(tiles, tile_begin + PACK_TILES);
    SELECT_PRODUCT(get_global_id(2));
    packed += (long)get_global_id(2) * tiles * k * MR;
    for (int p = p_begin; p < p_end; p++)
        for (int t = tile_begin; t < tile_end; t++) {
            __global const in_t *from = lhs + t * MR * lhs_row + p * lhs_col;
            __global acc_t *to = packed + ((long)t * k + p) * MR;
            int rows = m - t * MR;
            if (rows >= MR) {
#pragma unroll
                for (int i = 0; i < MR; i++)
                    to[i] = LOAD(from, i * lhs_row);
            } else {
                for (int i = 0; i < MR; i++)
                    to[i] = LOAD(from, min(i, rows - 1) * lhs_row);
            }
        }
}
#endif

/* While a row of a panel is multiplied with. */
#define FETCH_AHEAD                                                            \
    _Pragma("unroll") for (int j = 0; j < NR; j += LINE_ELEMS)                 \
        WILL_READ(from_ + ROWS_AHEAD * NR + j)

/* Sums of one register tile over kc elements; b is a panel with rows b_row apart. LOAD_Y reads a vector of a
 * row, and AFTER is done with the NV of them in y. */
#define MULTIPLY(b_space, b_t, b, b_row, LOAD_Y, AFTER)                        \
    do {                                                                       \
        b_space const b_t *from_ = (b);                                        \
        for (int p = 0; p < kc; p++) {                                         \
            acc_v y[NV];                                                       \
            _Pragma("unroll") for (int j = 0; j < NV; j++)                     \
                y[j] = LOAD_Y(from_, j * VW);                                  \
            AFTER;                                                             \
            _Pragma("unroll") for (int i = 0; i < MR; i++)                     \
            {                                                                  \
                acc_v x = (acc_v)(LHS_AT(i, p));                               \
                _Pragma("unroll") for (int j = 0; j < NV; j++)                 \
                    acc[i][j] += x * y[j];                                     \
            }                                                                  \
            from_ += (b_row);                                                  \
        }                                                                      \
    } while (0)

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void cpu_gemm(__global const in_t *restrict all_lhs, __global const in_t *restrict all_rhs,
                       __global out_t *restrict all_out, const args_t args, __global acc_t *restrict parts
#if TURNS
                       , volatile __global int *restrict turns
#endif
#if LHS_FROM == PACKED
                       , __global const acc_t *restrict all_packed
#endif
)
{
    PROBLEM_FROM(args)
    int col_block = args.col_block, row_block = args.row_block, depth_block = args.depth_block;
    int columns = (n + col_block - 1) / col_block, rows = (m + row_block - 1) / row_block;
    int depth = args.depth, slices = args.slices;
    bool copy_rhs = args.copy_rhs;
    __local acc_t panels[PANEL_ROWS * NR] __attribute__((aligned(64)));
#if LHS_FROM == COPIED
    __local acc_t tile[MR * LHS_PITCH] __attribute__((aligned(64)));
#endif
#ifdef RHS_COL_1
    bool copy_while_multiplying = COPIES && m <= FUSED_ROWS;
#endif
    long held = -1; /* what of rhs the panels hold */

#if TURNS
    FOR_MY_BLOCKS(block, turns, args.blocks, (int)get_num_groups(0))
#else
    int block = get_group_id(0);
#endif
    {
        int row_begin = block % rows * row_block, row_end = min(m, row_begin + row_block);
        int col_begin = block / rows % columns * col_block, col_end = min(n, col_begin + col_block);
        int part = block / rows / columns, product = part / slices;
        int k_begin = part % slices * depth, k_end = min(k, k_begin + depth);
        __global const in_t *lhs = all_lhs, *rhs = all_rhs;
        __global out_t *out = all_out;
        SELECT_PRODUCT(product);
#if LHS_FROM == PACKED
        __global const acc_t *packed = all_packed + (long)product * ((m + MR - 1) / MR) * k * MR;
#endif
        __global acc_t *sums = parts + (long)part * m * n;
        long sums_row = n;
#if !PARTS
        if (slices == 1) {
            sums = out;
            sums_row = out_row;
        }
#endif

        int depths = (k_end - k_begin + depth_block - 1) / depth_block;
        for (int d = 0; d < depths; d++) {
            /* There and back again: the copies that one block ends with are those the next one begins with. */
            int depth_index = block % rows % 2 ? depths - 1 - d : d;
            int k0 = k_begin + depth_index * depth_block, kc = min(depth_block, k_end - k0);
            bool first = d == 0, last = slices == 1 && d == depths - 1;
            long wanted = (long)(block / rows) * k + k0;
            bool fresh = wanted != held;
            int col_copy = fresh ? col_begin : col_end;
            held = wanted;
#ifdef RHS_COL_1
            int full = fresh ? (col_end - col_begin) / NR : 0;
            if (COPIES && fresh && !copy_while_multiplying)
                copy_full_panels(rhs, rhs_row_arg, k0, kc, col_begin, full, panels);
            col_copy += full * NR;
#endif
            /* Copied where panels lie, or, if only the last is because it is not full, at the beginning. */
            for (; col_copy < col_end; col_copy += NR)
                copy_panel(rhs, rhs_row_arg, rhs_col_arg, k0, kc, col_copy, n,
                           panels + (COPIES ? (col_copy - col_begin) * kc : 0));
            for (int row = row_begin; row < row_end; row += MR) {
#if LHS_FROM == PACKED
                __global const acc_t *a = packed + ((long)(row / MR) * k + k0) * MR;
#elif LHS_FROM == COPIED
                copy_rows(lhs, lhs_row_arg, lhs_col_arg, k0, kc, row, row_end, tile);
#else
                __global const acc_t *a[MR];
#pragma unroll
                for (int i = 0; i < MR; i++)
                    a[i] = lhs + min(row + i, row_end - 1) * lhs_row + k0 * lhs_col;
#endif
                for (int col = col_begin; col < col_end; col += NR) {
#pragma unroll
                    for (int i = 0; i < MR; i++)
#pragma unroll
                        for (int j = 0; j < NV; j++)
                            WILL_WRITE(sums + min(row + i, row_end - 1) * sums_row + col + j * VW);
                    acc_v acc[MR][NV];
#pragma unroll
                    for (int i = 0; i < MR; i++)
#pragma unroll
                        for (int j = 0; j < NV; j++)
                            acc[i][j] = 0;
                    __local acc_t *panel = panels + (COPIES ? (col - col_begin) * kc : 0);
#ifdef RHS_COL_1
                    if (copy_while_multiplying && fresh && row == row_begin && col + NR <= col_end)
                        MULTIPLY(__global, in_t, rhs + k0 * rhs_row + col, rhs_row, LOADV, COPY_Y(panel));
                    else
#endif
#if IN == F32 || IN == F64
                    if (!COPIES && col + NR <= col_end)
                        MULTIPLY(__global, in_t, rhs + k0 * rhs_row + col, rhs_row, LOAD_ACCV, );
                    else
#endif
                        MULTIPLY(__local, acc_t, panel, NR, LOAD_ACCV, FETCH_AHEAD);
                    if (col + NR <= col_end) {
#pragma unroll
                        for (int i = 0; i < MR; i++) {
                            if (row + i >= row_end)
                                continue;
#pragma unroll
                            for (int j = 0; j < NV; j++) {
                                acc_v sum = acc[i][j];
                                long at = (row + i) * sums_row + col + j * VW;
                                if (!first)
                                    sum += LOAD_ACCV(sums, at);
#if PARTS
                                if (last)
                                    STOREV(sum, out, (row + i) * out_row + col + j * VW);
                                else
#endif
                                    STORE_ACCV(sum, sums, at);
                            }
                        }
                        continue;
                    }
                    acc_t edge[MR][NR];
#pragma unroll
                    for (int i = 0; i < MR; i++)
#pragma unroll
                        for (int j = 0; j < NV; j++)
                            STORE_ACCV(acc[i][j], edge[i], j * VW);
                    for (int i = 0; i < min(MR, row_end - row); i++)
                        for (int j = 0; j < min(NR, col_end - col); j++) {
                            long at = (row + i) * sums_row + col + j;
                            acc_t sum = edge[i][j];
                            if (!first)
                                sum += sums[at];
#if PARTS
                            if (last)
                                STORE(sum, out, (row + i) * out_row + col + j);
                            else
#endif
                                sums[at] = sum;
                        }
                }
            }
        }
    }
}
