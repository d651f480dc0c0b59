"""A service that reads orders as JSON, prices them and writes them back: text, dictionaries, regular expressions."""
import json, os, random, re, time

SKU = re.compile(r"^(?P<family>[A-Z]{3})-(?P<number>\d{4})$")
PRICES = {"ABC": 12.5, "DEF": 3.75, "XYZ": 99.0}


def make_batch(rng, size):
    families = list(PRICES)
    orders = [
        {"id": n, "lines": [{"sku": f"{rng.choice(families)}-{rng.randrange(10000):04}", "count": rng.randrange(1, 9)}
                            for _ in range(rng.randrange(1, 12))]}
        for n in range(size)
    ]
    return json.dumps(orders)


def price_line(line):
    match = SKU.match(line["sku"])
    discount = 0.9 if int(match["number"]) % 7 == 0 else 1.0
    return line["count"] * PRICES[match["family"]] * discount


def price_order(order):
    order["total"] = round(sum(price_line(line) for line in order["lines"]), 2)
    return order


def handle(batch):
    priced = [price_order(order) for order in json.loads(batch)]
    priced.sort(key=lambda order: -order["total"])
    return json.dumps(priced[:100])


def main():
    parent, rng = os.getppid(), random.Random(1)
    batch = make_batch(rng, 400)
    while os.getppid() == parent:
        handle(batch)
        time.sleep(0.004)  # waits for the next batch


if __name__ == "__main__":
    main()
