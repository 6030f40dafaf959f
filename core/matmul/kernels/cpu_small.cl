/* A product so small that one core computes it before another is awake: no copies, no blocks, one work-item.
 *
 *   VW, NV, MR   the register tile: MR rows of NV vectors of VW elements, as in cpu.cl; the result is at least
 *                as large. The last tile of a row and of a column begins earlier instead of being smaller, and
 *                computes some results again; where one vector is enough for what is left of the rows, it has one.
 *
 * lhs and rhs have contiguous rows. What is not needed is no argument: each costs time in every launch.
 */
typedef struct {
    long lhs_at, rhs_at, out_at;
    int lhs_row, rhs_row, out_row, m, n, k;
} args_t;

#define NR (NV * VW)

/* One register tile with `vectors` vectors a row, at column col of the rows that a, and out, begin with. */
#define TILE(vectors, col)                                                                                   \
    do {                                                                                                     \
        acc_v acc[MR][vectors];                                                                              \
        _Pragma("unroll") for (int i = 0; i < MR; i++)                                                       \
            _Pragma("unroll") for (int j = 0; j < vectors; j++)                                              \
                acc[i][j] = 0;                                                                               \
        __global const acc_t *b = rhs + (col);                                                               \
        for (int p = 0; p < k; p++) {                                                                        \
            acc_v y[vectors];                                                                                \
            _Pragma("unroll") for (int j = 0; j < vectors; j++)                                              \
                y[j] = LOAD_ACCV(b, j * VW);                                                                 \
            _Pragma("unroll") for (int i = 0; i < MR; i++)                                                   \
            {                                                                                                \
                acc_v x = (acc_v)(a[i][p]);                                                                  \
                _Pragma("unroll") for (int j = 0; j < vectors; j++)                                          \
                    acc[i][j] += x * y[j];                                                                   \
            }                                                                                                \
            b += rhs_pitch;                                                                                  \
        }                                                                                                    \
        _Pragma("unroll") for (int i = 0; i < MR; i++)                                                       \
            _Pragma("unroll") for (int j = 0; j < vectors; j++)                                              \
                STORE_ACCV(acc[i][j], out, (row + i) * out_pitch + (col) + j * VW);                          \
    } while (0)

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void cpu_small(BUFFER_ARGS, const args_t args)
{
    long lhs_pitch = args.lhs_row, rhs_pitch = args.rhs_row, out_pitch = args.out_row;
    int m = args.m, n = args.n, k = args.k;
    lhs += args.lhs_at;
    rhs += args.rhs_at;
    out += args.out_at;
    for (int r = 0; r < m; r += MR) {
        int row = min(r, m - MR);
        __global const acc_t *a[MR];
#pragma unroll
        for (int i = 0; i < MR; i++)
            a[i] = lhs + (row + i) * lhs_pitch;
        for (int c = 0; c < n; c += NR) {
            if (n - c > VW)
                TILE(NV, min(c, n - NR));
            else
                TILE(1, n - VW);
        }
    }
}
