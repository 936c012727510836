// Rows of the left tile lie one after the other, and so do columns of the right one: its matrices are read by columns.
// A subgroup without a task has nowhere to go. (It goes there by a loop: naga takes a subgroup's number for different in each
// invocation, and allows no condition on it.)
        for (var u = select(${BK}u, 0u, task < ${TASKS}u); u < ${BK}u; u += ${S}u) {
//#for c TC
            let b_${c} = coopLoad<coop_mat${S}x${S}<${E}, B>>(&tile_b[(task_col + ${c}u * ${S}u) * ${LD}u + u], ${LD}u);
//#end
//#for r TR
            let a_${r} = coopLoadT<coop_mat${S}x${S}<${E}, A>>(&tile_a[(task_row + ${r}u * ${S}u) * ${LD}u + u], ${LD}u);
//#for c TC
            sum_${r}_${c} = coopMultiplyAdd(a_${r}, b_${c}, sum_${r}_${c});
//#end
//#end
        }
