// Copies one or two matrices of any strides into rows that start at multiples of 16 bytes: to[row][0 .. pitch),
// zeros past `cols`. ELEM is an unsigned integer type of the element's size.
//
// Straight: neighbouring columns lie together in the source too; each work-item makes 16 bytes of a row.
// Turned: neighbouring rows do; 32 x 32 tiles go through local memory, so that both sides are touched along memory.
//
// Work-groups 0 .. a_groups-1 move the first matrix, the others the second.

#define GROUP 256
#define PIECE (16 / sizeof(ELEM))
#define SIDE 32

#define MATRIX(p)                                                                                            \
    __global const ELEM *p##_from, long p##_offset, long p##_row, long p##_col, long p##_outer, long p##_inner, \
    __global ELEM *p##_to, uint p##_rows, uint p##_cols, uint p##_pitch, uint p##_inner_count, uint p##_wide, uint p##_high

static inline void straight(__global const ELEM *from, long row_stride, long col_stride, __global ELEM *to, uint rows,
                            uint cols, uint pitch, uint x, uint y)
{
    uint row = y * (GROUP / 32) + get_local_id(0) / 32, col = (x * 32 + get_local_id(0) % 32) * PIECE;
    if (row >= rows || col >= pitch) return;
    from += row * row_stride + col * col_stride;
    ELEM v[PIECE];
    #pragma unroll
    for (uint e = 0; e < PIECE; e++) v[e] = col + e < cols ? from[e * col_stride] : 0;
    uint words[4];
    #pragma unroll
    for (uint w = 0; w < 4; w++)
        words[w] = PIECE == 4 ? (uint)v[w % PIECE] : (uint)v[2 * w % PIECE] | (uint)v[(2 * w + 1) % PIECE] << 16;
    *(__global uint4 *)(to + (ulong)row * pitch + col) = (uint4)(words[0], words[1], words[2], words[3]);
}

static inline void turned(__global const ELEM *from, long row_stride, long col_stride, __global ELEM *to, uint rows,
                          uint cols, uint pitch, uint tile_x, uint tile_y, __local ELEM *tile)
{
    uint x = get_local_id(0) % SIDE, y = get_local_id(0) / SIDE, row0 = tile_y * SIDE, col0 = tile_x * SIDE;
    #pragma unroll
    for (uint i = 0; i < SIDE; i += GROUP / SIDE) {
        bool inside = row0 + x < rows && col0 + y + i < cols;
        tile[x * (SIDE + 1) + y + i] = inside ? from[(row0 + x) * row_stride + (col0 + y + i) * col_stride] : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (uint i = 0; i < SIDE; i += GROUP / SIDE)
        if (row0 + y + i < rows && col0 + x < pitch)
            to[(ulong)(row0 + y + i) * pitch + col0 + x] = tile[(y + i) * (SIDE + 1) + x];
}

#define MOVE(p, is_turned)                                                                                   \
    do {                                                                                                     \
        uint x = group % p##_wide, y = group / p##_wide % p##_high, batch = group / p##_wide / p##_high;     \
        p##_from += p##_offset + (batch / p##_inner_count) * p##_outer + (batch % p##_inner_count) * p##_inner; \
        p##_to += (ulong)batch * p##_rows * p##_pitch;                                                       \
        if (is_turned) turned(p##_from, p##_row, p##_col, p##_to, p##_rows, p##_cols, p##_pitch, x, y, tile); \
        else straight(p##_from, p##_row, p##_col, p##_to, p##_rows, p##_cols, p##_pitch, x, y);              \
    } while (0)

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void pack(MATRIX(a), MATRIX(b), uint a_groups)
{
    __local ELEM tile[SIDE * (SIDE + 1)];
    uint group = get_group_id(0);
    if (group < a_groups) {
        MOVE(a, A_TURNED);
    } else {
        group -= a_groups;
        MOVE(b, B_TURNED);
    }
}
