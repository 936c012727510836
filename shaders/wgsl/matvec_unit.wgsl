// One unit of k of matvec.wgsl: ${UNIT} elements from k on, for all rows and columns of the invocation.
//#if PROLOGUE
//#for u UNITS
        let gain_${u} = gain8(k + ${u}u * 8u);
        let shift_${u} = shift8(k + ${u}u * 8u);
//#end
//#endif
//#if Q8
//#for c CT
        let w_${c} = wq_${p}(right_${c}, depth, k);
//#if PAIR
        let v_${c} = wq_${p}(other_${c}, depth, k);
//#endif
//#end
//#for i M
        if (${i}u < m) {
//#if PROLOGUE
            let x = round8(
                prepare(x8(row_${i}, k), gain_0, shift_0, mean_${i}, scale_${i}),
                prepare(x8(row_${i}, k + 8u), gain_1, shift_1, mean_${i}, scale_${i}),
                prepare(x8(row_${i}, k + 16u), gain_2, shift_2, mean_${i}, scale_${i}),
                prepare(x8(row_${i}, k + 24u), gain_3, shift_3, mean_${i}, scale_${i}),
            );
//#else
            let x = round8(x8(row_${i}, k), x8(row_${i}, k + 8u), x8(row_${i}, k + 16u), x8(row_${i}, k + 24u));
//#endif
//#for c CT
            a_${i}_${c} += product8(x, w_${c});
//#if PAIR
            b_${i}_${c} += product8(x, v_${c});
//#endif
//#end
        }
//#end
//#else
//#if RAW
// Of quantized weights, 32 elements at once: 16 bytes in one load, one scale.
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
//#for i M
            if (${i}u < m) {
//#if PROLOGUE
                let x = prepare(x8(row_${i}, k + ${u}u * 8u), gain_${u}, shift_${u}, mean_${i}, scale_${i});
//#else
                let x = x8(row_${i}, k + ${u}u * 8u);
//#endif
//#for c CT
                a_${i}_${c} += dot(x.a, w_${c}.a) + dot(x.b, w_${c}.b);
//#if PAIR
                b_${i}_${c} += dot(x.a, v_${c}.a) + dot(x.b, v_${c}.b);
//#endif
//#end
            }
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
//#for i M
        if (${i}u < m) {
//#if PROLOGUE
            let x = prepare(x8(row_${i}, k), gain_0, shift_0, mean_${i}, scale_${i});
//#else
            let x = x8(row_${i}, k);
//#endif
//#for c CT
            a_${i}_${c} += dot(x.a, w_${c}.a) + dot(x.b, w_${c}.b);
//#if PAIR
            b_${i}_${c} += dot(x.a, v_${c}.a) + dot(x.b, v_${c}.b);
//#endif
//#end
        }
//#end
//#endif
//#endif
