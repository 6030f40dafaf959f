/* One work-item an element of the result; consecutive work-items take consecutive columns.
 *
 *            k                n                 n
 *        +-------+         +--:--+           +--:--+
 *      m |=======|  x    k |  :  |   ->    m |  x  |
 *        +-------+         +--:--+           +-----+
 */
__kernel void naive(PROBLEM_ARGS)
{
    int col = get_global_id(0), row = get_global_id(1);
    if (col >= n || row >= m)
        return;
    SELECT_PRODUCT(get_global_id(2));
    lhs += row * lhs_row;
    rhs += col * rhs_col;
    acc_t sum = 0;
    for (int i = 0; i < k; i++)
        sum += LOAD(lhs, i * lhs_col) * LOAD(rhs, i * rhs_row);
    STORE(sum, out, row * out_row + col);
}
