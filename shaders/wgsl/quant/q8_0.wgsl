// Q8_0 as repacked (see quant/mod.rs): a row is [8 words of signed bytes a block of 32][f16 d, two a word], x = d * q.
fn row_words_${P}(k: u32) -> u32 {
    return ((k / 32u) * 8u + (k / 32u + 1u) / 2u + 3u) & 0xfffffffcu;
}
fn scale_${P}(base: u32, k: u32, block: u32) -> f32 {
    return unpack2x16float(${W}(base + (k / 32u) * 8u + (block >> 1u)) >> ((block & 1u) * 16u)).x;
}
fn w8_${P}(base: u32, k: u32, e: u32) -> W8 {
    let d = scale_${P}(base, k, e >> 5u);
    let at = base + (e >> 2u);
    return W8(d * t_signed_bytes(${W}(at)), d * t_signed_bytes(${W}(at + 1u)));
}
fn raw_${P}(base: u32, k: u32, e: u32) -> Raw32 {
    var r: Raw32;
    r.q = ${V}(base + (e >> 2u));
    r.h = ${V}(base + (e >> 2u) + 4u);
    r.d.x = scale_${P}(base, k, e >> 5u);
    return r;
}
fn eight_${P}(r: Raw32, i: u32) -> W8 {
    let four = select(r.h, r.q, i < 2u);
    let two = select(four.zw, four.xy, (i & 1u) == 0u);
    return W8(r.d.x * t_signed_bytes(two.x), r.d.x * t_signed_bytes(two.y));
}
//#if Q8
fn wq_${P}(base: u32, k: u32, e: u32) -> Q32 {
    var result: Q32;
    let r = raw_${P}(base, k, e);
    for (var i = 0u; i < 4u; i++) {
        result.q[i] = r.q[i];
        result.q[4u + i] = r.h[i];
    }
    result.d0 = r.d.x;
    result.d1 = r.d.x;
    result.m = 0.0;
    return result;
}
//#endif
