// Ids that name no row: the first is kept for the host. A hole names none on purpose.
fn report(id: vec2<u32>) {
    if (all(id == ${HOLE})) {
        return;
    }
    let old = atomicCompareExchangeWeak(&fault[0], 0u, 1u);
    if (old.exchanged) {
        atomicStore(&fault[1], ${STEP});
        atomicStore(&fault[2], id.x);
    }
}
