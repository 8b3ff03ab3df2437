//! multiply-add SEED ROUNDS: the digests by the machine and by the library's emulation, and that of chains.

fn main() {
    let numbers: Vec<u32> = std::env::args()
        .skip(1)
        .map(|n| n.parse().expect("a number"))
        .collect();
    let [seed, rounds] = numbers[..] else {
        panic!("usage: multiply-add SEED ROUNDS")
    };
    println!("{:016x}", multiply_add::by_the_machine(seed, rounds));
    println!("{:016x}", multiply_add::emulated(seed, rounds));
    println!(
        "{:016x}",
        multiply_add::chains_by_the_machine(seed, rounds / 8)
    );
}
