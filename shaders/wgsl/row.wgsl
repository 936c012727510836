// A reduction or normalisation of rows. The generator gives
//   begin(row)                  sets the operands' base addresses of a row
//   before(j) -> ${T}           what is reduced, at inner index j
//   finish(row, j, acc)         the `after` expression, stored at the row's (or the element's) place
//   combine(a, b), identity()   the reduction's operation
//   ROWS, LENGTH                sizes, as expressions on the uniform block
// With SERIAL, one invocation walks a row alone: no barriers. Else a workgroup of ${WG} shares a row, and meets in a
// tree of workgroup memory; a norm then keeps ${KEEP} values an invocation in registers, so that a row of up to
// ${WG} * ${KEEP} elements is read once, whatever fused into `before` computed once; what is beyond is read again.
//#if !SERIAL
var<workgroup> shared_a: array<${T}, ${WG}>;
//#if ARG
var<workgroup> shared_i: array<u32, ${WG}>;
//#endif
//#endif
//#if ARG
struct Best {
    value: ${T},
    at: u32,
}
// Of two candidates, the one that wins; of equals, the first.
fn best(a: Best, b: Best) -> Best {
    if (b.at == 0xffffffffu) {
        return a;
    }
    if (a.at == 0xffffffffu) {
        return b;
    }
    let b_wins = wins(b.value, a.value) || (!wins(a.value, b.value) && b.at < a.at);
    if (b_wins) {
        return b;
    }
    return a;
}
//#endif
//#if SERIAL
fn meet(mine: ${T}, lid: u32) -> ${T} {
    return mine;
}
//#if NORM
fn meet_max(mine: f32, lid: u32) -> f32 {
    return mine;
}
//#endif
//#if ARG
fn meet_best(mine: Best, lid: u32) -> Best {
    return mine;
}
//#endif
//#else
fn meet(mine: ${T}, lid: u32) -> ${T} {
    shared_a[lid] = mine;
    workgroupBarrier();
    for (var half_ = ${WG}u / 2u; half_ > 0u; half_ = half_ / 2u) {
        if (lid < half_) {
            shared_a[lid] = combine(shared_a[lid], shared_a[lid + half_]);
        }
        workgroupBarrier();
    }
    let result = shared_a[0];
    workgroupBarrier();
    return result;
}
//#if NORM
fn meet_max(mine: f32, lid: u32) -> f32 {
    shared_a[lid] = mine;
    workgroupBarrier();
    for (var half_ = ${WG}u / 2u; half_ > 0u; half_ = half_ / 2u) {
        if (lid < half_) {
            shared_a[lid] = max(shared_a[lid], shared_a[lid + half_]);
        }
        workgroupBarrier();
    }
    let result = shared_a[0];
    workgroupBarrier();
    return result;
}
//#endif
//#if ARG
fn meet_best(mine: Best, lid: u32) -> Best {
    shared_a[lid] = mine.value;
    shared_i[lid] = mine.at;
    workgroupBarrier();
    for (var half_ = ${WG}u / 2u; half_ > 0u; half_ = half_ / 2u) {
        if (lid < half_) {
            let winner = best(Best(shared_a[lid], shared_i[lid]), Best(shared_a[lid + half_], shared_i[lid + half_]));
            shared_a[lid] = winner.value;
            shared_i[lid] = winner.at;
        }
        workgroupBarrier();
    }
    let result = Best(shared_a[0], shared_i[0]);
    workgroupBarrier();
    return result;
}
//#endif
//#endif
fn row(r: u32, lid: u32) {
    begin(r);
    let n = ${LENGTH};
//#for c KEEP
    let at_${c} = lid + ${c}u * ${STEP}u;
    var x_${c} = 0.0;
    if (at_${c} < n) {
        x_${c} = before(at_${c});
    }
//#end
    // Partial results of runs keep the rounding error of long sums low.
//#if ARG
    var mine = Best(identity(), 0xffffffffu);
    for (var j = lid; j < n; j += ${STEP}u) {
        mine = best(mine, Best(before(j), j));
    }
    let winner = meet_best(mine, lid);
    if (lid == 0u) {
        finish(r, 0u, select(winner.at, 0u, winner.at == 0xffffffffu));
    }
//#endif
//#if REDUCE
    var total = identity();
    for (var start = lid; start < n; start += ${RUN}u) {
        var run = identity();
        let end = min(n, start + ${RUN}u);
        for (var j = start; j < end; j += ${STEP}u) {
            run = combine(run, before(j));
        }
        total = combine(total, run);
    }
    var result = meet(total, lid);
//#if MEAN
    result = result / f32(n);
//#endif
    if (lid == 0u) {
        finish(r, 0u, result);
    }
//#endif
//#if NORM_ANY
    let rest_from = lid + ${KEEP}u * ${STEP}u;
//#endif
//#if RMS
    var squares = 0.0;
//#for c KEEP
    squares += x_${c} * x_${c};
//#end
    for (var j = rest_from; j < n; j += ${STEP}u) {
        let x = before(j);
        squares += x * x;
    }
    let scale = 1.0 / sqrt(meet(squares, lid) / f32(n) + ${EPS});
//#for c KEEP
    if (at_${c} < n) {
        finish(r, at_${c}, x_${c} * scale);
    }
//#end
    for (var j = rest_from; j < n; j += ${STEP}u) {
        finish(r, j, before(j) * scale);
    }
//#endif
//#if LAYER
    var sum = 0.0;
//#for c KEEP
    sum += x_${c};
//#end
    for (var j = rest_from; j < n; j += ${STEP}u) {
        sum += before(j);
    }
    let near = meet(sum, lid) / f32(n);
    // A second walk: the difference of two means of squares would cancel. It also corrects the mean, which is rounded in
    // a sum of large numbers.
    var rest = 0.0;
    var squares = 0.0;
//#for c KEEP
    if (at_${c} < n) {
        let x = x_${c} - near;
        rest += x;
        squares += x * x;
    }
//#end
    for (var j = rest_from; j < n; j += ${STEP}u) {
        let x = before(j) - near;
        rest += x;
        squares += x * x;
    }
    rest = meet(rest, lid) / f32(n);
    let mean = near + rest;
    let scale = 1.0 / sqrt(max(meet(squares, lid) / f32(n) - rest * rest, 0.0) + ${EPS});
//#for c KEEP
    if (at_${c} < n) {
        finish(r, at_${c}, (x_${c} - mean) * scale);
    }
//#end
    for (var j = rest_from; j < n; j += ${STEP}u) {
        finish(r, j, (before(j) - mean) * scale);
    }
//#endif
//#if SOFTMAX
    // A finite start: a row of -inf alone gives 0 / 0, which is NaN, as it should be. NaN reaches the sum.
    var top = -3.4028234e38;
//#for c KEEP
    if (at_${c} < n) {
        top = max(top, x_${c});
    }
//#end
    for (var j = rest_from; j < n; j += ${STEP}u) {
        top = max(top, before(j));
    }
    top = meet_max(top, lid);
    var sum = 0.0;
//#for c KEEP
    if (at_${c} < n) {
        x_${c} = t_exp(x_${c} - top);
        sum += x_${c};
    }
//#end
    for (var j = rest_from; j < n; j += ${STEP}u) {
        sum += t_exp(before(j) - top);
    }
    sum = meet(sum, lid);
//#for c KEEP
    if (at_${c} < n) {
        finish(r, at_${c}, x_${c} / sum);
    }
//#end
    for (var j = rest_from; j < n; j += ${STEP}u) {
        finish(r, j, t_exp(before(j) - top) / sum);
    }
//#endif
}
@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let group = wid.y * nwg.x + wid.x;
//#if SERIAL
    let r = group * ${WG}u + lid;
    if (r < ${ROWS}) {
        row(r, 0u);
    }
//#else
    if (group < ${ROWS}) {
        row(group, lid);
    }
//#endif
}
