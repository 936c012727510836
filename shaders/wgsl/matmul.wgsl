// One right operand of a product with many rows: part ${p}. A workgroup of 256 computes a tile of 64 rows and 64 columns
// (32 columns twice where the part is paired), each invocation 4 x 4 of it: rows ty + 16 i, columns tx + 16 j. Both
// operands pass through workgroup memory, 32 of k at a time; what lies at unit u of a row is stored at u ^ (row & 7), so
// that neighbours read different banks. Functions as in matvec.wgsl.
fn part${p}(group: u32, lid: u32) {
    let n = ${N};
    let m = ${M_SIZE};
    let depth = ${K};
    let tiles_n = (n + ${COLS}u - 1u) / ${COLS}u;
    let tiles_m = (m + 63u) / 64u;
    let col0 = (group % tiles_n) * ${COLS}u;
    let row0 = ((group / tiles_n) % tiles_m) * 64u;
    let batch = group / (tiles_n * tiles_m);
    let tx = lid % 16u;
    let ty = lid / 16u;
//#for i 4
//#for j 4
    var acc_${i}_${j} = 0.0;
//#end
//#end
//#if Q8
    // The first 64 invocations round the rows, the next 64 fetch the columns.
    let mine = lid % 64u;
    let left = left_base(batch) + min(row0 + mine, m - 1u) * ${LEFT_M};
//#else
    let mine = lid / 4u;
    let left = left_base(batch) + min(row0 + mine, m - 1u) * ${LEFT_M};
    let left_unit = lid % 4u;
//#endif
//#if BY_K
    let column = ${COLUMN};
    let right_unit = ${UNIT};
//#else
    let column = lid % 64u;
    let right_unit = lid / 64u;
//#endif
//#if PAIR
    let right = right_base${p}(batch, min(col0 + column % 32u, n - 1u) + select(0u, ${OTHER}, column >= 32u));
//#else
    let right = right_base${p}(batch, min(col0 + column, n - 1u));
//#endif
    for (var k0 = 0u; k0 < depth; k0 += 32u) {
//#if Q8
        if (lid < 64u) {
            let x = round8(x8(left, k0), x8(left, k0 + 8u), x8(left, k0 + 16u), x8(left, k0 + 24u));
            for (var w = 0u; w < 8u; w++) {
                tile_a[mine * 8u + (w ^ (mine & 7u))] = x.q[w];
            }
            scale_a[mine] = vec2<f32>(x.d, x.s);
        } else if (lid < 128u) {
            let q = wq_${p}(right, depth, k0);
            for (var w = 0u; w < 8u; w++) {
                tile_b[mine * 8u + (w ^ (mine & 7u))] = q.q[w];
            }
            scale_b[mine] = vec4<f32>(q.d0, q.d1, q.m, 0.0);
        }
        workgroupBarrier();
//#for i 4
        let xs_${i} = scale_a[ty + ${i}u * 16u];
//#end
//#for j 4
        let ws_${j} = scale_b[tx + ${j}u * 16u];
//#end
//#for i 4
//#for j 4
        var low_${i}_${j} = 0;
        var high_${i}_${j} = 0;
//#end
//#end
        for (var w = 0u; w < 4u; w++) {
//#for i 4
            let a_${i} = tile_a[(ty + ${i}u * 16u) * 8u + (w ^ (ty & 7u))];
            let c_${i} = tile_a[(ty + ${i}u * 16u) * 8u + ((w + 4u) ^ (ty & 7u))];
//#end
//#for j 4
            let b_${j} = tile_b[(tx + ${j}u * 16u) * 8u + (w ^ (tx & 7u))];
            let d_${j} = tile_b[(tx + ${j}u * 16u) * 8u + ((w + 4u) ^ (tx & 7u))];
//#end
//#for i 4
//#for j 4
            low_${i}_${j} += ${DOT}(a_${i}, b_${j});
            high_${i}_${j} += ${DOT}(c_${i}, d_${j});
//#end
//#end
        }
//#for i 4
//#for j 4
        acc_${i}_${j} += xs_${i}.x * (ws_${j}.x * f32(low_${i}_${j}) + ws_${j}.y * f32(high_${i}_${j})) + xs_${i}.y * ws_${j}.z;
//#end
//#end
        workgroupBarrier();
//#else
        let x = x8(left, k0 + left_unit * 8u);
        let w = w8_${p}(right, depth, k0 + right_unit * 8u);
        tile_a[mine * 8u + ((left_unit * 2u) ^ (mine & 7u))] = x.a;
        tile_a[mine * 8u + ((left_unit * 2u + 1u) ^ (mine & 7u))] = x.b;
        tile_b[column * 8u + ((right_unit * 2u) ^ (column & 7u))] = w.a;
        tile_b[column * 8u + ((right_unit * 2u + 1u) ^ (column & 7u))] = w.b;
        workgroupBarrier();
        for (var u = 0u; u < 8u; u++) {
//#for i 4
            let a_${i} = tile_a[(ty + ${i}u * 16u) * 8u + (u ^ (ty & 7u))];
//#end
//#for j 4
            let b_${j} = tile_b[(tx + ${j}u * 16u) * 8u + (u ^ (tx & 7u))];
//#end
//#for i 4
//#for j 4
            acc_${i}_${j} += dot(a_${i}, b_${j});
//#end
//#end
        }
        workgroupBarrier();
//#endif
    }
//#for i 4
    if (row0 + ty + ${i}u * 16u < m) {
        let i = row0 + ty + ${i}u * 16u;
//#if PAIR
        if (col0 + tx < n) {
            store_part${p}(batch, i, col0 + tx, acc_${i}_0, acc_${i}_2);
        }
        if (col0 + tx + 16u < n) {
            store_part${p}(batch, i, col0 + tx + 16u, acc_${i}_1, acc_${i}_3);
        }
//#else
//#for j 4
        if (col0 + tx + ${j}u * 16u < n) {
            store_part${p}(batch, i, col0 + tx + ${j}u * 16u, acc_${i}_${j}, 0.0);
        }
//#end
//#endif
    }
//#end
}
