// One right operand of a product with many rows, without barriers: part ${p}. An invocation computes 4 rows and ${CT}
// neighbouring columns in registers. For devices where barriers are dear. Functions as in matvec.wgsl.
fn part${p}(group: u32, lid: u32) {
    let n = ${N};
    let m = ${M_SIZE};
    let depth = ${K};
    let t = group * ${WG}u + lid;
    let tiles_n = (n + ${CT}u - 1u) / ${CT}u;
    let tiles_m = (m + 3u) / 4u;
    let batch = t / (tiles_n * tiles_m);
    if (batch >= ${BATCH}) {
        return;
    }
    let col = (t % tiles_n) * ${CT}u;
    let row = ((t / tiles_n) % tiles_m) * 4u;
    let left = left_base(batch);
//#for i 4
    let row_${i} = left + min(row + ${i}u, m - 1u) * ${LEFT_M};
//#end
//#if NVEC
    let right = right_base${p}(batch, min(col, (n - 1u) & 0xfffffffcu));
//#else
//#for c CT
    let right_${c} = right_base${p}(batch, min(col + ${c}u, n - 1u));
//#if PAIR
    let other_${c} = right_base${p}(batch, min(col + ${c}u, n - 1u) + ${OTHER});
//#endif
//#end
//#endif
//#for i 4
//#for c CT
    var a_${i}_${c} = 0.0;
//#if PAIR
    var b_${i}_${c} = 0.0;
//#endif
//#end
//#end
    for (var k = 0u; k < depth; k += ${UNIT}u) {
//#if Q8
//#for i 4
        let x_${i} = round8(x8(row_${i}, k), x8(row_${i}, k + 8u), x8(row_${i}, k + 16u), x8(row_${i}, k + 24u));
//#end
//#for c CT
        let w_${c} = wq_${p}(right_${c}, depth, k);
//#for i 4
        a_${i}_${c} += product8(x_${i}, w_${c});
//#end
//#if PAIR
        let v_${c} = wq_${p}(other_${c}, depth, k);
//#for i 4
        b_${i}_${c} += product8(x_${i}, v_${c});
//#end
//#endif
//#end
//#else
//#if RAW
//#for c CT
        let packed_${c} = raw_${p}(right_${c}, depth, k);
//#if PAIR
        let other_packed_${c} = raw_${p}(other_${c}, depth, k);
//#endif
//#end
//#for u UNITS
        {
//#for c CT
            let w_${c} = eight_${p}(packed_${c}, ${u}u);
//#if PAIR
            let v_${c} = eight_${p}(other_packed_${c}, ${u}u);
//#endif
//#end
//#for i 4
            let x_${i} = x8(row_${i}, k + ${u}u * 8u);
//#for c CT
            a_${i}_${c} += dot(x_${i}.a, w_${c}.a) + dot(x_${i}.b, w_${c}.b);
//#if PAIR
            b_${i}_${c} += dot(x_${i}.a, v_${c}.a) + dot(x_${i}.b, v_${c}.b);
//#endif
//#end
//#end
        }
//#end
//#else
//#if NVEC
        let w = w8x4_${p}(right, k);
        let w_0 = w.c0;
        let w_1 = w.c1;
        let w_2 = w.c2;
        let w_3 = w.c3;
//#else
//#for c CT
        let w_${c} = w8_${p}(right_${c}, depth, k);
//#if PAIR
        let v_${c} = w8_${p}(other_${c}, depth, k);
//#endif
//#end
//#endif
//#for i 4
        let x_${i} = x8(row_${i}, k);
//#for c CT
        a_${i}_${c} += dot(x_${i}.a, w_${c}.a) + dot(x_${i}.b, w_${c}.b);
//#if PAIR
        b_${i}_${c} += dot(x_${i}.a, v_${c}.a) + dot(x_${i}.b, v_${c}.b);
//#endif
//#end
//#end
//#endif
//#endif
    }
//#for i 4
//#for c CT
    if (row + ${i}u < m && col + ${c}u < n) {
//#if PAIR
        store_part${p}(batch, row + ${i}u, col + ${c}u, a_${i}_${c}, b_${i}_${c});
//#else
        store_part${p}(batch, row + ${i}u, col + ${c}u, a_${i}_${c}, 0.0);
//#endif
    }
//#end
//#end
}
