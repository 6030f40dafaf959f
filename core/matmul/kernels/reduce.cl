/* Adds up the partial products of a split k axis:  out[b][i][j] = sum over s of parts[b * slices + s][i][j].
 * One work-item an element; consecutive work-items take consecutive columns.
 */
__kernel void reduce_parts(
    __global const acc_t *restrict parts, __global out_t *restrict out, MATRIX_ARGS(out), int m, int n,
    int slices, int inner_extent)
{
    int col = get_global_id(0), row = get_global_id(1), product = get_global_id(2);
    if (col >= n || row >= m)
        return;
    out += out_at + (product / inner_extent) * out_outer + (product % inner_extent) * out_inner;
    parts += ((long)product * slices * m + row) * n + col;
    acc_t sum = 0;
    for (int s = 0; s < slices; s++)
        sum += parts[(long)s * m * n];
    STORE(sum, out, row * out_row + col);
}
