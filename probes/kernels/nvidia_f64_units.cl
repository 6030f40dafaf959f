/* How many f64 multiply-adds NVIDIA's matrix instructions do in a second, all operands in registers.
 *
 * warp_products: mma.sync over A_TILES x B_TILES independent products a warp, of 8 x 8 sums with DEPTH 4
 * multiply-adds each, or of 16 x 8 with 16, which capability 9.0 brought. A work-item holds 2 or 4 sums of a
 * product, 1 or 8 numbers of its A and 1 or 4 of its B.
 */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#if DEPTH == 16
#define A_NUMBERS 8
#define B_NUMBERS 4
#define SUMS 4
#define PRODUCT(c, a, b)                                                                                    \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "                     \
                 "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"              \
                 : "+d"((c)[0]), "+d"((c)[1]), "+d"((c)[2]), "+d"((c)[3])                                   \
                 : "d"((a)[0]), "d"((a)[1]), "d"((a)[2]), "d"((a)[3]), "d"((a)[4]), "d"((a)[5]),            \
                   "d"((a)[6]), "d"((a)[7]), "d"((b)[0]), "d"((b)[1]), "d"((b)[2]), "d"((b)[3]))
#else
#define A_NUMBERS 1
#define B_NUMBERS 1
#define SUMS 2
#define PRODUCT(c, a, b)                                                                                    \
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"          \
                 : "+d"((c)[0]), "+d"((c)[1]) : "d"((a)[0]), "d"((b)[0]))
#endif

/* A number of either sign and below 1 in size: the units draw more power on varied values than on zeros. */
static inline double varied(uint i) { return (int)(i * 2654435761u) * 0x1p-31; }

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void warp_products(__global double *out, int iterations)
{
    double a[A_TILES][A_NUMBERS], b[B_TILES][B_NUMBERS], acc[A_TILES][B_TILES][SUMS];
    uint thread = get_global_id(0);
    #pragma unroll
    for (uint i = 0; i < A_TILES; i++) {
        #pragma unroll
        for (uint r = 0; r < A_NUMBERS; r++)
            a[i][r] = varied(thread * 64 + i * A_NUMBERS + r);
    }
    #pragma unroll
    for (uint j = 0; j < B_TILES; j++) {
        #pragma unroll
        for (uint r = 0; r < B_NUMBERS; r++)
            b[j][r] = varied(thread * 64 + 32 + j * B_NUMBERS + r);
    }
    #pragma unroll
    for (uint t = 0; t < A_TILES * B_TILES * SUMS; t++)
        acc[t / SUMS / B_TILES][t / SUMS % B_TILES][t % SUMS] = 0.0;
    for (int n = 0; n < iterations; n++) {
        #pragma unroll
        for (uint i = 0; i < A_TILES; i++) {
            #pragma unroll
            for (uint j = 0; j < B_TILES; j++)
                PRODUCT(acc[i][j], a[i], b[j]);
        }
    }
    double sum = 0.0;
    #pragma unroll
    for (uint t = 0; t < A_TILES * B_TILES * SUMS; t++)
        sum += acc[t / SUMS / B_TILES][t / SUMS % B_TILES][t % SUMS];
    out[thread] = sum;
}
