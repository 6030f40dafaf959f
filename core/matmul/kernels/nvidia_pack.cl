// Copies a matrix of any strides into rows that start at multiples of 16 bytes: to[row][0 .. pitch), zeros past
// `cols`. ELEM is an unsigned integer type of the element's size. READ_ALONG_COLS: neighbouring columns lie
// nearer to one another in the source than neighbouring rows do.
//
// A work-group moves a 32 x 32 tile through local memory, so that both sides are touched along memory.

#define SIDE 32
#define LINES 8

__kernel __attribute__((reqd_work_group_size(SIDE, LINES, 1)))
void pack(__global const ELEM *from, long offset, long row_stride, long col_stride, long outer_stride, long inner_stride,
          __global ELEM *to, uint rows, uint cols, uint pitch, uint inner_batches)
{
    __local ELEM tile[SIDE][SIDE + 1];
    uint x = get_local_id(0), y = get_local_id(1), batch = get_group_id(2);
    uint row0 = get_group_id(1) * SIDE, col0 = get_group_id(0) * SIDE;
    from += offset + (batch / inner_batches) * outer_stride + (batch % inner_batches) * inner_stride;
    #pragma unroll
    for (uint i = 0; i < SIDE; i += LINES) {
        uint r = READ_ALONG_COLS ? y + i : x, c = READ_ALONG_COLS ? x : y + i;
        bool inside = row0 + r < rows && col0 + c < cols;
        tile[r][c] = inside ? from[(row0 + r) * row_stride + (col0 + c) * col_stride] : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    to += (ulong)batch * rows * pitch;
    #pragma unroll
    for (uint i = 0; i < SIDE; i += LINES)
        if (row0 + y + i < rows && col0 + x < pitch) to[(ulong)(row0 + y + i) * pitch + col0 + x] = tile[y + i][x];
}
