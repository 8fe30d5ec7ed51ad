"""Orders an article: the database has the stock, and the cache counts the orders."""

import redis
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.urls import path

from shop.models import Article, Order

cache = redis.Redis(host="cache", port=6379, socket_timeout=10)


def order(request: HttpRequest, name: str, number: int) -> HttpResponse:
    with transaction.atomic():
        article = Article.objects.select_for_update().get(name=name)
        if article.stock < number:
            return HttpResponseBadRequest("sold out")
        article.stock -= number
        article.save()
        Order.objects.create(article=article, number=number)
    return JsonResponse({"left": article.stock, "orders": cache.incr(f"orders:{name}")})


urlpatterns = [path("order/<name>/<int:number>", order)]
