# A web application: sorting, JSON and hashes.
import hashlib

from flask import Flask, jsonify

app = Flask(__name__)
ITEMS = [{"id": i, "name": f"item{i}", "price": i * 1.5} for i in range(500)]


@app.route("/list")
def list_items():
    return jsonify(sorted(ITEMS, key=lambda item: -item["price"])[:100])


@app.route("/hash/<int:rounds>")
def hash_it(rounds):
    digest = b""
    for i in range(rounds):
        digest = hashlib.sha256(digest + str(i).encode()).digest()
    return digest.hex()
