"""Orders in XML: checked by the broker, or by the client with an operator of its own."""

from tamis import open_bus_sync
from tamis.client import XMLText
from tamis.xml import query

CHAIRS = """<order number="1">
  <line><sku>chair</sku><quantity>9</quantity></line>
  <line><sku>table</sku><quantity>1</quantity></line>
</order>"""
TABLES = """<order number="2">
  <line><sku>chair</sku><quantity>1</quantity></line>
  <line><sku>table</sku><quantity>9</quantity></line>
</order>"""


def sounds_like(value: object, wanted: object) -> bool:
    """Compare texts without their vowels."""
    return str(value).translate(str.maketrans("", "", "aeiou")) == wanted


with open_bus_sync() as bus:
    # Both orders have a chair, and nine of something; only the first has nine chairs.
    many_chairs = bus.subscribe("order/line[sku = 'chair' $and$ quantity > 5]", language="xql")
    own = query("order/line[0]/sku $sounds$ 'tbl'", operators={"sounds": sounds_like})
    first_is_a_table = bus.subscribe(own)
    items = bus.subscribe('items[sku = "chair" and quantity > 5]')

    for text in (TABLES, CHAIRS, TABLES.replace("chair", "table")):
        bus.publish(XMLText(text))
    bus.publish({"items": [{"sku": "chair", "quantity": 9}, {"sku": "table", "quantity": 1}]})

    order = many_chairs.next(timeout="20s")
    print("many chairs:", "order", order["/order/@number"])
    found = first_is_a_table.next(timeout="20s")
    print("first is a table:", query("//line/sku").select(found.document)[0].xml)
    print("in JSON:", items.next(timeout="20s")["items"][0])
