/* Matrix times vector on a CPU, for matrices larger than its caches: out[i] = sum over p of mat[i, p] * vec[p].
 *
 * A core reads memory fastest as several long streams at once, each brought in a little ahead of its use:
 *
 *        mat, as it lies in memory             a block is STREAMS * stretch lines of it: rows where the summed
 *     +-----------------------------+          axis is contiguous (gemv_rows), else parts of columns (gemv_columns)
 *     | line 0         stream 0 --> |
 *     |  ...             stretch    |          stream s walks the lines s * stretch … of the block from end
 *     | line 1*stretch stream 1 --> |          to end, in step with the others
 *     |  ...                        |
 *     +-----------------------------+
 *
 * There is a work-item a core, and each takes the next block from a counter. What a block computes does not depend
 * on who takes it, so the result is the same in every run.
 *
 *   VW       elements of a vector            AHEAD     bytes a stream is asked for ahead of its use
 *   STREAMS  lines read at once              COLS      gemv_columns: most results of a block
 *
 * The summed axis of gemv_columns is cut in `rounds` of `lanes` slices each. A round takes half of what the ones
 * before have left, and the last one all of it: cores of different speed end at about the same time, with few
 * sums to add up. With more slices than one, slice s of product b writes its sums to parts[b * slices + s][i],
 * and gemv_add adds them up.
 */
typedef struct {
    long mat_at, mat_i_arg, mat_p_arg, mat_outer, mat_inner;
    long vec_at, vec_p, vec_outer, vec_inner;
    long out_at, out_i, out_outer, out_inner;
    int results, k, inner_extent;
    int blocks, stretch, cols, lanes, rounds;
} args_t;

#ifdef MAT_P_1
#define mat_p 1L
#else
#define mat_p args.mat_p_arg
#endif
#ifdef MAT_I_1
#define mat_i 1L
#else
#define mat_i args.mat_i_arg
#endif

#define SELECT_MATRIX(product)                                                                             \
    long outer_ = (product) / args.inner_extent, inner_ = (product) % args.inner_extent;                   \
    __global const in_t *mat = all_mat + args.mat_at + outer_ * args.mat_outer + inner_ * args.mat_inner;  \
    __global const in_t *vec = all_vec + args.vec_at + outer_ * args.vec_outer + inner_ * args.vec_inner;
#define SELECT_RESULT(product)                                                                             \
    __global out_t *out = all_out + args.out_at + (product) / args.inner_extent * args.out_outer +         \
                          (product) % args.inner_extent * args.out_inner;

#define EACH_STREAM _Pragma("unroll") for (int s = 0; s < STREAMS; s++)

#define SOON(p)
#if ON_CPU && defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#undef SOON
#define SOON(p) __builtin_prefetch((const void *)(size_t)(p), 0, 2) /* the level 2 cache: sums need the first */
#endif
#endif
#define AHEAD_ELEMS (AHEAD / (int)sizeof(in_t))

#ifdef MAT_P_1
#if VW == 1
#define TOTAL(v) (v)
#else
inline acc_t total_of(acc_v v)
{
    acc_t each[VW], sum = 0;
    STORE_ACCV(v, each, 0);
    for (int i = 0; i < VW; i++)
        sum += each[i];
    return sum;
}
#define TOTAL(v) total_of(v)
#endif

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void gemv_rows(__global const in_t *restrict all_mat, __global const in_t *restrict all_vec,
                        __global out_t *restrict all_out, const args_t args, volatile __global int *restrict turn)
{
    int results = args.results, k = args.k, most = STREAMS * args.stretch;
    int a_product = (results + most - 1) / most;
    FOR_MY_BLOCKS(block, turn, args.blocks, 1)
    {
        int first = block % a_product * most, last = min(results, first + most) - 1;
        int stretch = (last - first) / STREAMS + 1;
        SELECT_MATRIX(block / a_product)
        SELECT_RESULT(block / a_product)
        for (int r = 0; r < stretch; r++) {
            __global const in_t *row[STREAMS];
            acc_v sum[STREAMS];
            acc_t total[STREAMS];
            EACH_STREAM
            {
                row[s] = mat + min(first + s * stretch + r, last) * mat_i;
                sum[s] = 0;
            }
            int p = 0;
            for (; p + VW <= k; p += VW) {
#ifdef VEC_1
                acc_v x = LOADV(vec, p);
#else
                acc_t each[VW];
                for (int v = 0; v < VW; v++)
                    each[v] = LOAD(vec, (p + v) * args.vec_p);
                acc_v x = LOAD_ACCV(each, 0);
#endif
                EACH_STREAM
                {
                    SOON(row[s] + p + AHEAD_ELEMS);
                    sum[s] += LOADV(row[s], p) * x;
                }
            }
            EACH_STREAM total[s] = TOTAL(sum[s]);
            for (; p < k; p++) {
                acc_t x = LOAD(vec, p * args.vec_p);
                EACH_STREAM total[s] += LOAD(row[s], p) * x;
            }
            EACH_STREAM STORE(total[s], out, min(first + s * stretch + r, last) * args.out_i);
        }
    }
}

#else
inline void store_results(acc_v v, __global out_t *out, long out_i)
{
#ifdef OUT_1
    STOREV(v, out, 0);
#else
    acc_t each[VW];
    STORE_ACCV(v, each, 0);
    for (int i = 0; i < VW; i++)
        STORE(each[i], out, i * out_i);
#endif
}

inline int slice_begin(int k, int slice, int lanes, int rounds)
{
    int round = slice / lanes;
    if (round == rounds)
        return k;
    int left = k >> round, next = round + 1 < rounds ? k >> (round + 1) : 0;
    return (k - left + (long)(left - next) * (slice % lanes) / lanes) / STREAMS * STREAMS;
}

/* The vector of sums number c / VW gets what the streams have from column `at` on. */
#define ADD_TO_SUMS(c, at)                                                                                  \
    do {                                                                                                    \
        long soon = (at) + AHEAD_ELEMS + ((at) + AHEAD_ELEMS < width ? 0 : mat_p - width);                  \
        acc_v sum = LOAD_ACCV(sums, c);                                                                     \
        EACH_STREAM                                                                                         \
        {                                                                                                   \
            SOON(row[s] + soon);                                                                            \
            sum += LOADV(row[s], at) * x[s];                                                                \
        }                                                                                                   \
        STORE_ACCV(sum, sums, c);                                                                           \
    } while (0)

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void gemv_columns(__global const in_t *restrict all_mat, __global const in_t *restrict all_vec,
                           __global out_t *restrict all_out, const args_t args, volatile __global int *restrict turn,
                           __global acc_t *restrict parts)
{
    __local acc_t sums[COLS] __attribute__((aligned(64)));
    int results = args.results, slices = args.lanes * args.rounds;
    int pieces = (results + args.cols - 1) / args.cols;
    FOR_MY_BLOCKS(block, turn, args.blocks, 1)
    {
        int part = block / pieces, slice = part % slices;
        /* At least one vector wide: the last piece begins earlier, and computes some of its neighbour's again. */
        int col_begin = min(block % pieces * args.cols, results - VW);
        int width = min(args.cols, results - col_begin);
        int p_begin = slice_begin(args.k, slice, args.lanes, args.rounds);
        int p_end = slice_begin(args.k, slice + 1, args.lanes, args.rounds);
        int stretch = (p_end - p_begin) / STREAMS;
        SELECT_MATRIX(part / slices)
        mat += col_begin;
        for (int c = 0; c < width; c += VW)
            STORE_ACCV((acc_v)(0), sums, c);
        for (int r = 0; r < stretch; r++) {
            __global const in_t *row[STREAMS];
            acc_t x[STREAMS];
            EACH_STREAM
            {
                int p = p_begin + s * stretch + r;
                row[s] = mat + p * mat_p;
                x[s] = LOAD(vec, p * args.vec_p);
            }
            int c = 0;
            for (; c + VW <= width; c += VW)
                ADD_TO_SUMS(c, c);
            if (c < width)
                ADD_TO_SUMS(c, width - VW);
        }
        for (int p = p_begin + STREAMS * stretch; p < p_end; p++) {
            acc_t x = LOAD(vec, p * args.vec_p);
            for (int c = 0; c < width; c += VW)
                STORE_ACCV(LOAD_ACCV(sums, c) + LOADV(mat + p * mat_p, min(c, width - VW)) * x, sums, c);
        }
        SELECT_RESULT(part / slices)
        __global acc_t *to = parts + (long)part * results + col_begin;
        for (int c = 0; c < width; c += VW) {
            int at = min(c, width - VW);
            if (slices == 1)
                store_results(LOAD_ACCV(sums, c), out + (col_begin + at) * args.out_i, args.out_i);
            else
                STORE_ACCV(LOAD_ACCV(sums, c), to, at);
        }
    }
}

/* Work-group (g, product) adds up the slices of results g * ADDED … */
__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void gemv_add(__global out_t *restrict all_out, const args_t args, __global const acc_t *restrict parts)
{
    int results = args.results, slices = args.lanes * args.rounds;
    int begin = get_group_id(0) * ADDED, end = min(results, begin + ADDED);
    SELECT_RESULT(get_group_id(1))
    parts += (long)get_group_id(1) * slices * results;
    for (int c = begin; c < end; c += VW) {
        int at = min(c, results - VW);
        acc_v sum = 0;
        for (int s = 0; s < slices; s++)
            sum += LOAD_ACCV(parts, (long)s * results + at);
        store_results(sum, out + at * args.out_i, args.out_i);
    }
}
#endif
